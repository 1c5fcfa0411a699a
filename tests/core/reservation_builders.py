"""Builders for Reservations, pods and the ledger of one node."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from croupier.core.claims import reservation, reservation_status
from croupier.core.claims.reservation_inputs import (
    LastReservationStatus,
    ReservationInputs,
    ReservationOutcome,
    ReservationRequest,
)
from croupier.core.claims.rival_hold import RivalHold
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import CardGrant, LedgerCard
from croupier.core.model.card_request import CardShares
from croupier.core.model.pod_view import PodView

NOON = datetime(2030, 1, 31, 12, 0, 0, tzinfo=UTC)
NODE = "node-1"
UID = "uid-1"
POD = "default/my-pod"
NO_STATUS = LastReservationStatus()
HOLDER = f"{POD}/{UID}"


def after_noon(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def cards(count: int = 2, node: str = NODE) -> Ledger:
    return Ledger(node, tuple(LedgerCard(f"{node}-{index}", index) for index in range(count)))


def reservation_request(
    name: str = "mine",
    cards: int = 2,
    percent: int = 50,
    *,
    pod: str = POD,
    namespace: str = "default",
    ttl: int | None = None,
    priority: int = 0,
    age: float = 0,
    deleted: bool = False,
    has_finalizer: bool = True,
    last_status: LastReservationStatus = NO_STATUS,
) -> ReservationRequest:
    return ReservationRequest(
        namespace=namespace,
        name=name,
        pod=pod,
        want=CardShares(cards, percent),
        created=after_noon(-age),
        priority=priority,
        until=None if ttl is None else after_noon(ttl - age),
        deleted=deleted,
        has_finalizer=has_finalizer,
        last_status=last_status,
    )


def running_pod(pod: str = POD, uid: str = UID, node: str = NODE, *, finished: bool = False) -> PodView:
    return PodView(pod, uid, node=node, finished=finished)


def waiting_pod(pod: str = POD, uid: str = UID) -> PodView:
    return PodView(pod, uid)


def with_holder(
    ledger: Ledger, holder: str, percent: int = 50, *, cards: int = 2, terms: HoldTerms | None = None
) -> Ledger:
    grant = tuple(CardGrant(card.id, percent) for card in ledger.cards[:cards])
    given = ledger_ops.give(ledger, holder, grant, terms or HoldTerms(bound=True))
    assert isinstance(given, Ledger), given
    return given


def held_by(name: str = "mine", until: datetime | None = None, *, bound: bool = False) -> HoldTerms:
    return HoldTerms(bound=bound, until=until, reservation=name)


def rival(name: str = "other", *, node: str = "node-2", age: float = 0, has_pod: bool = False) -> RivalHold:
    return RivalHold(f"default/{name}", node, after_noon(-age), has_pod)


def inputs(
    *asked: ReservationRequest,
    pods: tuple[PodView, ...] = (),
    rivals: tuple[RivalHold, ...] = (),
    seconds: float = 0,
    node: str = NODE,
) -> ReservationInputs:
    return ReservationInputs(
        node,
        after_noon(seconds),
        asked,
        {pod.key: pod for pod in pods},
        rivals={POD: rivals} if rivals else {},
    )


def decided(
    ledger: Ledger | None,
    what: ReservationInputs,
    elsewhere: tuple[Ledger, ...] = (),
    *,
    gone: tuple[str, ...] = (),
    exists: bool = True,
) -> tuple[Ledger | None, dict[str, ReservationOutcome], reservation_status.ReservationDecisions]:
    """The ledger and the outcomes by Reservation name; `gone` are holders whose pod is deleted."""
    what = with_ended_pods(ledger, replace(what, exists=exists), gone)
    settled = None if ledger is None else reservation.apply(ledger, what, "BinPack")
    judged = reservation_status.decide(settled, what, {other.node: other for other in elsewhere}, "BinPack")
    return settled, {key.partition("/")[2]: outcome for key, outcome in judged.outcomes.items()}, judged


def with_ended_pods(
    ledger: Ledger | None, what: ReservationInputs, gone: tuple[str, ...] = ()
) -> ReservationInputs:
    """The inputs with the holders whose pods have ended."""
    over, unseen = reservation.ended_holders(ledger, what.pods)
    over |= frozenset(gone) & frozenset(unseen)
    departed = reservation.reservations_of_ended_pods(ledger, over, what)
    return replace(what, over=over, departed=departed)
