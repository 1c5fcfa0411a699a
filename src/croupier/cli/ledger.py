"""`croupier ledger`: what every node has left, or one node card by card."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, showing, tables, terminal

if TYPE_CHECKING:
    from croupier.book.snapshot import Snapshot
    from croupier.core.ledgers.overview import Amount

HEADERS = ("node", "cards", "percent", "slots", "slices", "holders", "held", "sick", "findings")


def ledger(
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", help="This node, card by card.")] = None,
    *,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show what is free of every node (free/all), or the cards of one node and who holds them.

    \b
    croupier ledger
    croupier ledger node-1
    croupier ledger -o json
    """
    from croupier.book import snapshot

    terminal.check_output(output)
    seen = cluster.ask(cluster.Target(kubeconfig, context), lambda api: snapshot.take(api, cluster.now()))
    if node is not None and node not in seen.ledgers:
        there = "it has no cards" if node in seen.nodes else "there is no such node"
        typer.echo(f"croupier: the ledger has no node {node}: {there}.", err=True)
        raise typer.Exit(1)
    if output == "json":
        data = _node(seen, node) if node else [_summary(seen, name) for name in seen.ledgers]
        typer.echo(showing.json(data))
    elif node is not None:
        typer.echo("\n".join(node_lines(seen, node)))
    elif seen.ledgers:
        tables.echo(HEADERS, [row(seen, name) for name in seen.ledgers])
    else:
        typer.echo("No node has cards.")


def row(seen: "Snapshot", name: str) -> tuple[str, ...]:
    from croupier.core.ledgers import overview

    sums = overview.summary(seen.ledgers[name])
    return (
        name,
        str(sums.cards),
        str(sums.percent),
        ", ".join(f"{amount} {profile}" for profile, amount in sums.slots.items()),
        str(sums.slices),
        str(sums.holders),
        str(sums.held or "-"),
        str(sums.sick or "-"),
        str(len(seen.findings.get(name, ())) or "-"),
    )


def node_lines(seen: "Snapshot", name: str) -> list[str]:
    book = seen.ledgers[name]
    waiting = [
        f"  {key}: Held {f'until {showing.moment(until)}' if until else 'until released'}"
        for key, until in sorted(book.held.items())
    ]
    made = [f"  {key}: Reservation {one}" for key, one in sorted(book.reservations.items())]
    found = [f"  {one.kind}: {one.message}" for one in seen.findings.get(name, ())]
    return [
        f"Node {name}: {len(book.cards)} cards, {len(book.holders())} holders",
        *(f"  {line}" for line in showing.card_lines(book)),
        *(["", "Not bound yet:", *waiting] if waiting else []),
        *(["", "By Reservation:", *made] if made else []),
        *(["", "Findings:", *found] if found else []),
    ]


def _amount(amount: "Amount") -> dict[str, int]:
    return {"free": amount.free, "total": amount.total}


def _summary(seen: "Snapshot", name: str) -> dict[str, Any]:
    from croupier.core.ledgers import overview

    sums = overview.summary(seen.ledgers[name])
    return {
        "node": name,
        "cards": _amount(sums.cards),
        "percent": _amount(sums.percent),
        "slots": {profile: _amount(amount) for profile, amount in sums.slots.items()},
        "slices": _amount(sums.slices),
        "holders": sums.holders,
        "held": sums.held,
        "sick": sums.sick,
        "findings": [
            {
                "class": one.kind,
                "message": one.message,
                "card": one.card or None,
                "holder": one.holder or None,
            }
            for one in seen.findings.get(name, ())
        ],
        "recorded": name in seen.recorded,
    }


def _node(seen: "Snapshot", name: str) -> dict[str, Any]:
    book = seen.ledgers[name]
    return {
        **_summary(seen, name),
        "devices": showing.cards(book),
        "waiting": dict(sorted(book.held.items())),
        "reservations": dict(sorted(book.reservations.items())),
    }
