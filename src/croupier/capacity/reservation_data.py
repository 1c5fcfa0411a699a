"""Every Reservation and every other holder of cards, for the command line and web pages."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from croupier.api import convert_pod
from croupier.api.core_v1 import Pod
from croupier.api.mps import Reservation
from croupier.capacity import ledger_data
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.ledger import overview
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.overview import HolderSummary
from croupier.core.model import card_request
from croupier.core.model.pod_view import PodView


@dataclass(frozen=True, slots=True)
class ReservationRow:
    namespace: str
    pod: str
    node: str
    state: str
    """Pending, Failed or Released from the Reservation; Held or Bound from the ledger."""
    until: datetime | None = None
    cards: tuple[dict[str, Any], ...] = ()
    share: str = ""
    owner: str | None = None
    priority: int = 0
    created: datetime | None = None
    reservation: str | None = None
    message: str | None = None


def rows(seen: ClusterSnapshot) -> Iterator[ReservationRow]:
    """Every Reservation with its ledger entry, then every holder without a Reservation."""
    holdings = [holding for ledger in seen.ledgers.values() for holding in overview.holder_summaries(ledger)]
    by_reservation = {
        (holding.pod.partition("/")[0], holding.reservation): holding
        for holding in holdings
        if holding.reservation
    }
    for reservation in seen.reservations:
        meta = reservation.metadata
        ledger = seen.ledgers.get(reservation.spec.node_name)
        yield of_reservation(ledger, reservation, by_reservation.pop((meta.namespace, meta.name), None))
    for holding in holdings:
        if not holding.reservation or (holding.pod.partition("/")[0], holding.reservation) in by_reservation:
            yield _of_holder(seen, holding)
    if seen.incomplete:
        holders = {holding.pod for holding in holdings}
        reserved = {item.spec.pod_key for item in seen.reservations if item.status.phase == "Reserved"}
        for key, pod in seen.pods.items():
            if key not in holders | reserved and (view := convert_pod.view(pod)).grant:
                yield _of_pod(pod, view)


def holding(ledger: Ledger | None, reservation: Reservation) -> HolderSummary | None:
    """The ledger entry of a Reservation, from the ledger of its node."""
    meta = reservation.metadata
    holders = ledger.reservations.items() if ledger is not None else ()
    for holder, name in holders:
        if ledger is not None and name == meta.name and holder.partition("/")[0] == meta.namespace:
            return overview.holder_summary(ledger, holder)
    return None


def of_reservation(
    ledger: Ledger | None, reservation: Reservation, holding: HolderSummary | None
) -> ReservationRow:
    """The row of a Reservation; `ledger` is that of its node."""
    spec, status, meta = reservation.spec, reservation.status, reservation.metadata
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
        owner=spec.owner or None,
        priority=spec.priority,
        created=meta.creation_timestamp,
        reservation=meta.name,
        message=status.message or None,
    )


def _of_holder(seen: ClusterSnapshot, holding: HolderSummary) -> ReservationRow:
    namespace, _, name = holding.pod.partition("/")
    ledger = seen.ledgers[holding.node]
    pod = seen.pods.get(holding.pod)
    if pod is not None and pod.metadata.uid != holding.uid:
        pod = None
    shares = dict.fromkeys(ledger_data.share(ledger.card(part.card), part) for part in holding.grant)
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
        reservation=holding.reservation or None,
    )


def _of_pod(pod: Pod, view: PodView) -> ReservationRow:
    """The row of a pod whose ledger the user may not read, by the allocation in its Binding."""
    indexes = view.indexes if len(view.indexes) == len(view.grant) else (None,) * len(view.grant)
    return ReservationRow(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        node=view.node,
        state="Bound",
        cards=tuple(
            {"card": part.card, "index": index} for part, index in zip(view.grant, indexes, strict=True)
        ),
        share=card_request.describe(view.wants),
        owner=_owner(pod),
        priority=pod.spec.priority,
        created=pod.metadata.creation_timestamp,
    )


def _cards(ledger: Ledger | None, holding: HolderSummary | None) -> tuple[dict[str, Any], ...]:
    return (
        tuple(ledger_data.parts(ledger, holding.grant)) if ledger is not None and holding is not None else ()
    )


def _owner(pod: Pod | None) -> str | None:
    """The controller of the pod, as `KIND/NAME`."""
    owners = pod.metadata.owner_references if pod is not None else ()
    return next((f"{owner.kind}/{owner.name}" for owner in owners if owner.controller), None)
