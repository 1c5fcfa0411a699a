"""`croupier reservations`: all Reservations and all other holders in the ledger."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, rendering, tables, terminal

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.api.core_v1 import Pod
    from croupier.api.mps import Reservation
    from croupier.capacity.snapshot import ClusterSnapshot
    from croupier.core.ledger.ledger import Ledger
    from croupier.core.ledger.overview import HolderSummary

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


@dataclass(frozen=True, slots=True)
class ReservationRow:
    namespace: str
    pod: str
    node: str
    state: str
    """Pending, Failed or Released from the Reservation; Held or Bound from the ledger."""
    until: "datetime | None" = None
    cards: tuple[dict[str, Any], ...] = ()
    share: str = ""
    owner: str = ""
    priority: int = 0
    created: "datetime | None" = None
    reservation: str = ""
    message: str = ""


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
    terminal.check_output(output)
    if everywhere and namespace is not None:
        terminal.usage_error("--all-namespaces and --namespace are mutually exclusive.")
    target = cluster.ClusterTarget(kubeconfig, context)
    seen, own = cluster.run(target, _read)
    selected = None if everywhere else namespace or own
    matching = sorted(
        (row for row in rows(seen) if selected in (None, row.namespace)),
        key=lambda row: (row.namespace, row.pod, row.node),
    )
    now = cluster.now()
    if output == "json":
        typer.echo(rendering.json([_data(row) for row in matching]))
    elif matching:
        tables.echo(HEADERS, [_cells(row, now) for row in matching])
    else:
        typer.echo(f"No reservations{'' if selected is None else f' in namespace {selected}'}.")


async def _read(api: Any) -> "tuple[ClusterSnapshot, str]":
    from croupier.capacity import snapshot

    return await snapshot.take(api, cluster.now(), with_pods=True), api.config.namespace


def rows(seen: "ClusterSnapshot") -> Iterator[ReservationRow]:
    """Every Reservation with its ledger entry, then every holder without a Reservation."""
    from croupier.core.ledger import overview

    holdings = [holding for ledger in seen.ledgers.values() for holding in overview.holder_summaries(ledger)]
    by_reservation = {
        (holding.pod.partition("/")[0], holding.reservation): holding
        for holding in holdings
        if holding.reservation
    }
    for reservation in seen.reservations:
        meta = reservation.metadata
        yield _of_reservation(seen, reservation, by_reservation.pop((meta.namespace, meta.name), None))
    for holding in holdings:
        if not holding.reservation or (holding.pod.partition("/")[0], holding.reservation) in by_reservation:
            yield _of_holder(seen, holding)


def _of_reservation(
    seen: "ClusterSnapshot", reservation: "Reservation", holding: "HolderSummary | None"
) -> ReservationRow:
    spec, status, meta = reservation.spec, reservation.status, reservation.metadata
    ledger = seen.ledgers.get(spec.node_name)
    state: str = status.phase
    if holding is not None and status.phase == "Reserved":
        state = "Held" if holding.held else "Bound"
    return ReservationRow(
        namespace=meta.namespace,
        pod=spec.pod_key.partition("/")[2],
        node=spec.node_name,
        state=state,
        until=holding.until if holding is not None else None,
        cards=_cards(ledger, holding),
        share=f"{spec.num_cards} × {spec.percent_per_card} %",
        owner=spec.owner,
        priority=spec.priority,
        created=meta.creation_timestamp,
        reservation=meta.name,
        message=status.message,
    )


def _of_holder(seen: "ClusterSnapshot", holding: "HolderSummary") -> ReservationRow:
    namespace, _, name = holding.pod.partition("/")
    ledger = seen.ledgers[holding.node]
    pod = seen.pods.get(holding.pod)
    if pod is not None and pod.metadata.uid != holding.uid:
        pod = None
    shares = dict.fromkeys(rendering.share(ledger.card(part.card), part) for part in holding.grant)
    return ReservationRow(
        namespace=namespace,
        pod=name,
        node=holding.node,
        state="Held" if holding.held else "Bound",
        until=holding.until,
        cards=_cards(ledger, holding),
        share=", ".join(shares),
        owner=_owner(pod),
        priority=pod.spec.priority if pod is not None else 0,
        created=pod.metadata.creation_timestamp if pod is not None else None,
        reservation=holding.reservation,
    )


def _cards(ledger: "Ledger | None", holding: "HolderSummary | None") -> tuple[dict[str, Any], ...]:
    return tuple(rendering.parts(ledger, holding.grant)) if ledger is not None and holding is not None else ()


def _owner(pod: "Pod | None") -> str:
    """The controller of the pod, as `KIND/NAME`."""
    owners = pod.metadata.owner_references if pod is not None else ()
    return next((f"{owner.kind}/{owner.name}" for owner in owners if owner.controller), "")


def _cells(row: ReservationRow, now: "datetime") -> tuple[str, ...]:
    return (
        row.namespace,
        row.pod,
        row.node,
        ",".join(str(card["index"]) for card in row.cards),
        row.share,
        f"{row.state} until {rendering.timestamp(row.until)}" if row.until else row.state,
        row.owner,
        str(row.priority or "-"),
        tables.age(now - row.created) if row.created is not None else "",
        row.reservation,
        row.message,
    )


def _data(row: ReservationRow) -> dict[str, Any]:
    return {
        "namespace": row.namespace,
        "pod": row.pod,
        "node": row.node,
        "state": row.state,
        "until": row.until,
        "cards": list(row.cards),
        "share": row.share,
        "owner": row.owner or None,
        "priority": row.priority,
        "created": row.created,
        "reservation": row.reservation or None,
        "message": row.message or None,
    }
