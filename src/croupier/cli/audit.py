"""`croupier audit`: find and repair differences between the ledger, pods and nodes."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, completion, listing, terminal

if TYPE_CHECKING:
    from croupier.controllers.ledger.inspection import CheckedFinding, Inspection
    from croupier.core.claims.audit import LedgerRepair

HEADERS = ("node", "class", "card", "holder", "finding", "repair")
OPTIONAL = ("card", "holder", "repair")

IN_MEMORY = (
    "There is no NodeReservation: the extender keeps the ledger in memory, and audits and repairs it itself."
    " These findings come from pods and Reservations only."
)


def audit(
    node: Annotated[
        str | None,
        typer.Argument(metavar="[NODE]", help="Audit only this node.", autocompletion=completion.nodes),
    ] = None,
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Apply the safe repairs.")] = False,
    output: listing.Format = "table",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Compare the ledger with pods and nodes. Changes nothing without --fix.

    Exit code 0 if no findings remain, 1 otherwise.

    \b
    croupier audit
    croupier audit node-1 --fix
    croupier audit -o json
    """
    from croupier.controllers.ledger import inspection

    listing.check(output)
    result = cluster.run(
        cluster.ClusterTarget(kubeconfig, context),
        lambda api: inspection.inspect(api, node=node, fix=fix),
        needs=cluster.LEDGER_KINDS,
    )
    if node is not None and node not in result.nodes:
        terminal.fail(f"the ledger has no node {node}.")
    if not result.recorded and output in ("table", "wide"):
        typer.echo(IN_MEMORY + (" Nothing was repaired." if fix else ""))
    listing.echo(output, _listing(result))
    raise typer.Exit(1 if result.left else 0)


def _listing(result: "Inspection") -> listing.Listing:
    return listing.Listing(
        headers=HEADERS,
        optional=OPTIONAL,
        rows=[row(checked) for checked in result.checked],
        names=[f"node/{node}" for node in dict.fromkeys(checked.node for checked in result.checked)],
        data=as_data(result),
        empty=f"No findings on {terminal.plural(len(result.nodes), 'node')}.",
    )


def row(checked: "CheckedFinding") -> tuple[str, ...]:
    finding = checked.divergence.finding
    action = repair(checked.divergence.repair)
    cell = f"done: {action}" if checked.repaired else action
    return (checked.node, finding.kind, finding.card, finding.holder, finding.message, cell)


def repair(what: "LedgerRepair | None") -> str:
    from croupier.core.claims.audit import AdoptPod, MoveGrants, ReleaseHolder, SyncCards

    match what:
        case ReleaseHolder():
            return "release the grant"
        case AdoptPod():
            return "record the pod"
        case MoveGrants():
            return "follow the allocation"
        case SyncCards():
            return "sync the reported cards"
        case None:
            return "no safe repair"


def as_data(result: "Inspection") -> dict[str, Any]:
    return {
        "recorded": result.recorded,
        "nodes": sorted(result.nodes),
        "left": result.left,
        "findings": [_data(checked) for checked in result.checked],
    }


def _data(checked: "CheckedFinding") -> dict[str, Any]:
    finding = checked.divergence.finding
    return {
        "node": checked.node,
        "class": finding.kind,
        "message": finding.message,
        "card": finding.card or None,
        "holder": finding.holder or None,
        "repair": repair(checked.divergence.repair) if checked.divergence.repair is not None else None,
        "repaired": checked.repaired,
    }
