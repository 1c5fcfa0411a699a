"""`croupier reservations`: all Reservations and all other holders in the ledger."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, listing, rendering, tables, terminal

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
WIDE = ("owner", "priority")
OPTIONAL = ("age", "reservation", "message", "cards", "share")


def reservations(
    *,
    namespace: cluster.Namespace = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="List all namespaces.")] = False,
    output: listing.Format = "table",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """List Reservations, and cards held for pods without a Reservation.

    With rights in one namespace only, it lists those of that namespace, and names on stderr what could not be
    read.

    \b
    croupier reservations -n team
    croupier reservations -A -o wide
    """
    from croupier.capacity import reservation_data

    listing.check(output)
    if everywhere and namespace is not None:
        terminal.usage_error("--all-namespaces and --namespace are mutually exclusive.")
    target = cluster.ClusterTarget(kubeconfig, context)
    seen, own = cluster.run(target, lambda api: _read(api, namespace), needs=cluster.LEDGER_KINDS)
    for sentence in seen.unreadable:
        typer.echo(f"not read: {sentence}", err=True)
    selected = None if everywhere else namespace or own
    matching = sorted(
        (row for row in reservation_data.rows(seen) if selected in (None, row.namespace)),
        key=lambda row: (row.namespace, row.pod, row.node),
    )
    now = cluster.now()
    found = listing.Listing(
        headers=HEADERS,
        wide=WIDE,
        optional=OPTIONAL,
        text="message",
        rows=[_cells(row, now) for row in matching],
        names=[_name(row) for row in matching],
        data=matching,
        empty=f"No reservations{'' if selected is None else f' in namespace {selected}'}.",
    )
    listing.echo(output, found)


def _name(row: "ReservationRow") -> str:
    """The Reservation, or the pod if a scheduler holds its cards without one."""
    return f"reservation.mps.nvidia.com/{row.reservation}" if row.reservation else f"pod/{row.pod}"


async def _read(api: Any, namespace: str | None) -> "tuple[ClusterSnapshot, str]":
    from croupier.capacity import snapshot

    own = api.config.namespace
    return await snapshot.take(api, cluster.now(), with_pods=True, member_of=namespace or own), own


def _cells(row: "ReservationRow", now: "datetime") -> tuple[str, ...]:
    return (
        row.namespace,
        row.pod,
        row.node,
        ",".join(str(card["card"] if card["index"] is None else card["index"]) for card in row.cards),
        row.share,
        f"{row.state} until {rendering.timestamp(row.until)}" if row.until else row.state,
        row.owner or "",
        str(row.priority or "-"),
        tables.age(now - row.created) if row.created is not None else "",
        row.reservation or "",
        row.message or "",
    )
