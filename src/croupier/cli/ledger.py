"""`croupier ledger`: free capacity per node, or the cards of one node."""

from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import cluster, completion, listing, rendering, terminal
from croupier.cli.terminal import plural

if TYPE_CHECKING:
    from croupier.capacity.snapshot import ClusterSnapshot

HEADERS = ("node", "cards", "percent", "slots", "slices", "holders", "held", "withheld", "findings")
OPTIONAL = ("held", "slices", "findings", "slots", "holders")


def ledger(
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]", help="Show the cards of this node.", autocompletion=completion.nodes
        ),
    ] = None,
    *,
    output: listing.Format = "table",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show the free capacity of every node (free/total), or the cards of one node and their holders.

    \b
    croupier ledger
    croupier ledger node-1
    croupier ledger -o json
    """
    from croupier.capacity import ledger_data, snapshot

    listing.check(output)
    seen = cluster.run(
        cluster.ClusterTarget(kubeconfig, context),
        lambda api: snapshot.take(api, cluster.now()),
        needs=cluster.LEDGER_KINDS,
    )
    if node is not None and node not in seen.ledgers:
        reason = "it has no cards" if node in seen.nodes else "there is no such node"
        terminal.fail(f"the ledger has no node {node}: {reason}.")
    if node is not None and listing.is_data(output):
        listing.echo_data(output, ledger_data.node_details(seen, node))
    elif node is not None and output == "table":
        typer.echo("\n".join(node_lines(seen, node)))
    else:
        listing.echo(output, _listing(seen, [node] if node is not None else list(seen.ledgers)))


def _listing(seen: "ClusterSnapshot", nodes: list[str]) -> listing.Listing:
    from croupier.capacity import ledger_data

    return listing.Listing(
        headers=HEADERS,
        optional=OPTIONAL,
        rows=[row(seen, name) for name in nodes],
        names=[f"nodereservation.mps.nvidia.com/{name}" for name in nodes],
        data=[ledger_data.node_summary(seen, name) for name in nodes],
        empty="No node has cards.",
    )


def row(seen: "ClusterSnapshot", name: str) -> tuple[str, ...]:
    from croupier.core.ledger import overview

    sums = overview.summary(seen.ledgers[name])
    return (
        name,
        str(sums.cards),
        str(sums.percent),
        ", ".join(f"{amount} {profile}" for profile, amount in sums.slots.items()),
        str(sums.slices),
        str(sums.holders),
        str(sums.held or "-"),
        overview.withheld_words(sums) or "-",
        str(len(seen.findings.get(name, ())) or "-"),
    )


def node_lines(seen: "ClusterSnapshot", name: str) -> list[str]:
    entry = seen.ledgers[name]
    pending = [
        f"  {key}: Held {f'until {rendering.timestamp(until)}' if until else 'until released'}"
        for key, until in sorted(entry.held.items())
    ]
    reserved = [
        f"  {key}: Reservation {reservation}" for key, reservation in sorted(entry.reservations.items())
    ]
    findings = [f"  {finding.kind}: {finding.message}" for finding in seen.findings.get(name, ())]
    return [
        f"Node {name}: {plural(len(entry.cards), 'card')}, {plural(len(entry.holders()), 'holder')}",
        *(f"  {line}" for line in rendering.card_lines(entry)),
        *(["", "Not bound yet:", *pending] if pending else []),
        *(["", "By Reservation:", *reserved] if reserved else []),
        *(["", "Findings:", *findings] if findings else []),
    ]
