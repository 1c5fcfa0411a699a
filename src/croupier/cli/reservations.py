"""`croupier reservations`: all Reservations and all other holders in the ledger."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, rendering, tables, terminal

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.capacity.reservation_data import ReservationRow
    from croupier.capacity.snapshot import ClusterSnapshot

HEADERS = (
    "namespace",
    "pod",
    "node",
    "cards",
    "share",
    "state",
    "owner",
    "priority",
    "age",
    "reservation",
    "message",
)


def reservations(
    *,
    namespace: cluster.Namespace = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="List all namespaces.")] = False,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """List Reservations, and cards held for pods without a Reservation.

    \b
    croupier reservations -n team
    croupier reservations -A -o json
    """
    from croupier.capacity import reservation_data

    terminal.check_output(output)
    if everywhere and namespace is not None:
        terminal.usage_error("--all-namespaces and --namespace are mutually exclusive.")
    target = cluster.ClusterTarget(kubeconfig, context)
    seen, own = cluster.run(target, _read)
    selected = None if everywhere else namespace or own
    matching = sorted(
        (row for row in reservation_data.rows(seen) if selected in (None, row.namespace)),
        key=lambda row: (row.namespace, row.pod, row.node),
    )
    now = cluster.now()
    if output == "json":
        typer.echo(rendering.json(matching))
    elif matching:
        tables.echo(HEADERS, [_cells(row, now) for row in matching])
    else:
        typer.echo(f"No reservations{'' if selected is None else f' in namespace {selected}'}.")


async def _read(api: Any) -> "tuple[ClusterSnapshot, str]":
    from croupier.capacity import snapshot

    return await snapshot.take(api, cluster.now(), with_pods=True), api.config.namespace


def _cells(row: "ReservationRow", now: "datetime") -> tuple[str, ...]:
    return (
        row.namespace,
        row.pod,
        row.node,
        ",".join(str(card["index"]) for card in row.cards),
        row.share,
        f"{row.state} until {rendering.timestamp(row.until)}" if row.until else row.state,
        row.owner or "",
        str(row.priority or "-"),
        tables.age(now - row.created) if row.created is not None else "",
        row.reservation or "",
        row.message or "",
    )
