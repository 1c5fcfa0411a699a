"""`croupier audit`: where ledger, pods and nodes disagree, and putting it right."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, showing, tables, terminal

if TYPE_CHECKING:
    from croupier.controllers.ledger.inspection import Checked, Inspection
    from croupier.core.ledgers.audit import Repair

HEADERS = ("node", "class", "card", "holder", "finding", "repair")

IN_MEMORY = (
    "There is no NodeReservation: the book is kept in memory, by the extender, which audits and repairs it"
    " itself. This is what pods and Reservations say."
)


def audit(
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", help="This node only.")] = None,
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired safely.")] = False,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Compare the ledger with pods and nodes. Changes nothing without --fix.

    Exit code 0 if nothing is left to do, 1 if something is.

    \b
    croupier audit
    croupier audit node-1 --fix
    croupier audit -o json
    """
    from croupier.controllers.ledger import inspection

    terminal.check_output(output)
    found = cluster.ask(
        cluster.Target(kubeconfig, context), lambda api: inspection.inspect(api, node=node, fix=fix)
    )
    if node is not None and node not in found.nodes:
        typer.echo(f"croupier: the ledger has no node {node}.", err=True)
        raise typer.Exit(1)
    if output == "json":
        typer.echo(showing.json(as_data(found)))
    else:
        _print(found, fix=fix)
    raise typer.Exit(1 if found.left else 0)


def _print(found: "Inspection", *, fix: bool) -> None:
    if not found.recorded:
        typer.echo(IN_MEMORY + (" Nothing was repaired." if fix else ""))
    if found.checked:
        tables.echo(HEADERS, [row(one) for one in found.checked])
    else:
        typer.echo(f"Nothing found: {_nodes(len(found.nodes))} looked at.")


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def row(one: "Checked") -> tuple[str, ...]:
    finding = one.divergence.finding
    remedy = repair(one.divergence.repair)
    told = f"done: {remedy}" if one.repaired else remedy
    return (one.node, finding.kind, finding.card, finding.holder, finding.message, told)


def repair(what: "Repair | None") -> str:
    """What the repair does, in a few words."""
    from croupier.core.ledgers.audit import Adopt, Move, Refit, Release

    match what:
        case Release():
            return "release it"
        case Adopt():
            return "count the pod"
        case Move():
            return "follow the allocation"
        case Refit():
            return "take the reported cards"
        case None:
            return "none that is safe"


def as_data(found: "Inspection") -> dict[str, Any]:
    return {
        "recorded": found.recorded,
        "nodes": sorted(found.nodes),
        "left": found.left,
        "findings": [_data(one) for one in found.checked],
    }


def _data(one: "Checked") -> dict[str, Any]:
    finding = one.divergence.finding
    return {
        "node": one.node,
        "class": finding.kind,
        "message": finding.message,
        "card": finding.card or None,
        "holder": finding.holder or None,
        "repair": repair(one.divergence.repair) if one.divergence.repair is not None else None,
        "repaired": one.repaired,
    }
