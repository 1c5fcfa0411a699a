"""`croupier reservations`: everything that is held, whoever asked for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, showing, tables, terminal

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.api.core_v1 import Pod
    from croupier.api.mps import Reservation
    from croupier.book.snapshot import Snapshot
    from croupier.core.ledgers.ledger import Ledger
    from croupier.core.ledgers.overview import Holding

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
class Row:
    namespace: str
    pod: str
    node: str
    state: str
    """Pending, Failed or Released as the Reservation says; Held or Bound as the ledger does."""
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
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Those of every namespace.")
    ] = False,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """List Reservations, and what schedulers hold for pods without one.

    \b
    croupier reservations -n team
    croupier reservations -A -o json
    """
    terminal.check_output(output)
    if everywhere and namespace is not None:
        terminal.refuse("--all-namespaces and --namespace exclude each other.")
    target = cluster.Target(kubeconfig, context)
    seen, own = cluster.ask(target, _look)
    wanted = None if everywhere else namespace or own
    found = sorted(
        (row for row in rows(seen) if wanted in (None, row.namespace)),
        key=lambda row: (row.namespace, row.pod, row.node),
    )
    now = cluster.now()
    if output == "json":
        typer.echo(showing.json([_data(row) for row in found]))
    elif found:
        tables.echo(HEADERS, [_cells(row, now) for row in found])
    else:
        typer.echo(f"Nothing is held{'' if wanted is None else f' in namespace {wanted}'}.")


async def _look(api: Any) -> "tuple[Snapshot, str]":
    from croupier.book import snapshot

    return await snapshot.take(api, cluster.now(), with_pods=True), api.config.namespace


def rows(seen: "Snapshot") -> Iterator[Row]:
    """Every Reservation, with what the ledger knows of it; then every holder that has none."""
    from croupier.core.ledgers import overview

    holdings = [one for ledger in seen.ledgers.values() for one in overview.holdings(ledger)]
    by_reservation = {
        (one.pod.partition("/")[0], one.reservation): one for one in holdings if one.reservation
    }
    for reservation in seen.reservations:
        meta = reservation.metadata
        yield _of_reservation(seen, reservation, by_reservation.pop((meta.namespace, meta.name), None))
    for one in holdings:
        if not one.reservation or (one.pod.partition("/")[0], one.reservation) in by_reservation:
            yield _of_holder(seen, one)


def _of_reservation(seen: "Snapshot", asked: "Reservation", has: "Holding | None") -> Row:
    spec, status, meta = asked.spec, asked.status, asked.metadata
    ledger = seen.ledgers.get(spec.node_name)
    state: str = status.phase
    if has is not None and status.phase == "Reserved":
        state = "Held" if has.held else "Bound"
    return Row(
        namespace=meta.namespace,
        pod=spec.pod_key.partition("/")[2],
        node=spec.node_name,
        state=state,
        until=has.until if has is not None else None,
        cards=_cards(ledger, has),
        share=f"{spec.num_cards} × {spec.percent_per_card} %",
        owner=spec.owner,
        priority=spec.priority,
        created=meta.creation_timestamp,
        reservation=meta.name,
        message=status.message,
    )


def _of_holder(seen: "Snapshot", has: "Holding") -> Row:
    namespace, _, name = has.pod.partition("/")
    ledger = seen.ledgers[has.node]
    pod = seen.pods.get(has.pod)
    if pod is not None and pod.metadata.uid != has.uid:
        pod = None
    shares = dict.fromkeys(showing.share(ledger.card(part.card), part) for part in has.grant)
    return Row(
        namespace=namespace,
        pod=name,
        node=has.node,
        state="Held" if has.held else "Bound",
        until=has.until,
        cards=_cards(ledger, has),
        share=", ".join(shares),
        owner=_owner(pod),
        priority=pod.spec.priority if pod is not None else 0,
        created=pod.metadata.creation_timestamp if pod is not None else None,
        reservation=has.reservation,
    )


def _cards(ledger: "Ledger | None", has: "Holding | None") -> tuple[dict[str, Any], ...]:
    return tuple(showing.parts(ledger, has.grant)) if ledger is not None and has is not None else ()


def _owner(pod: "Pod | None") -> str:
    """Who made the pod."""
    owners = pod.metadata.owner_references if pod is not None else ()
    return next((f"{one.kind}/{one.name}" for one in owners if one.controller), "")


def _cells(row: Row, now: "datetime") -> tuple[str, ...]:
    return (
        row.namespace,
        row.pod,
        row.node,
        ",".join(str(card["index"]) for card in row.cards),
        row.share,
        f"{row.state} until {showing.moment(row.until)}" if row.until else row.state,
        row.owner,
        str(row.priority or "-"),
        tables.age(now - row.created) if row.created is not None else "",
        row.reservation,
        row.message,
    )


def _data(row: Row) -> dict[str, Any]:
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
