"""Decides the mirrors of a node: Reservations that show what placed pods hold.

The setting `reservations.mirror` turns them on, so that the list of Reservations shows everything that is
held. A mirror holds nothing: the ledger has the pod's own hold, and nothing that decides about cards reads
mirrors.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from croupier.core.claims.reservation_inputs import ReservationOutcome
from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import mig
from croupier.core.model.card import CardGrant, Grant, LedgerCard
from croupier.core.model.card_request import WHOLE_CARD
from croupier.core.model.phase import ReservationPhase

_MAX_NAME: Final = 253
_UID_PREFIX: Final = 8


@dataclass(frozen=True, slots=True)
class PlacementMirror:
    """The Reservation that shows the placement of one pod."""

    pod: str
    """`namespace/name`."""
    uid: str
    node: str
    cards: Grant
    """The share of each card in percent, rounded up."""

    @property
    def namespace(self) -> str:
        return self.pod.partition("/")[0]

    @property
    def name(self) -> str:
        """The name of the pod and the start of its UID: a later pod of the same name has another mirror."""
        suffix = f"-{self.uid[:_UID_PREFIX]}"
        return self.pod.partition("/")[2][: _MAX_NAME - len(suffix)].rstrip("-.") + suffix

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def percent(self) -> int:
        return max(part.share for part in self.cards)

    @property
    def outcome(self) -> ReservationOutcome:
        message = f"shows what pod {self.pod} holds; this Reservation itself holds nothing"
        return ReservationOutcome("PodBound", message, self.cards, self.uid)


@dataclass(frozen=True, slots=True)
class ExistingMirror:
    key: str
    phase: ReservationPhase
    changed: datetime | None = None
    """When its phase last changed."""
    has_finalizer: bool = False
    """It is a Reservation that holds cards, and another client added the label of a mirror."""


@dataclass(frozen=True, slots=True)
class CreateMirror:
    mirror: PlacementMirror


@dataclass(frozen=True, slots=True)
class ReportMirror:
    """Write this status, if it differs."""

    key: str
    outcome: ReservationOutcome


@dataclass(frozen=True, slots=True)
class DeleteMirror:
    key: str


@dataclass(frozen=True, slots=True)
class UnmarkMirror:
    """Remove the label of a mirror."""

    key: str


MirrorStep: TypeAlias = CreateMirror | ReportMirror | DeleteMirror | UnmarkMirror

ENDED: Final = ReservationOutcome("PodEnded", "the pod has ended, and its cards were released")


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    steps: tuple[MirrorStep, ...] = ()
    again_after: float | None = None
    """Seconds until a Released mirror is deleted."""


def placements(ledger: Ledger) -> tuple[PlacementMirror, ...]:
    """What each pod holds that has no Reservation."""
    cards = {card.id: card for card in ledger.cards}
    return tuple(
        PlacementMirror(
            holder_names.pod_key(holder),
            holder_names.uid(holder),
            ledger.node,
            tuple(CardGrant(part.card, _percent(cards[part.card], part)) for part in ledger.grant(holder)),
        )
        for holder in sorted(ledger.holders())
        if holder_names.uid(holder) and holder not in ledger.reservations
    )


def plan(
    placed: Iterable[PlacementMirror],
    existing: Mapping[str, ExistingMirror],
    now: datetime,
    *,
    keep: timedelta,
) -> MirrorPlan:
    """The steps for the mirrors of a node; a Released mirror is deleted after `keep`."""
    wanted = {mirror.key: mirror for mirror in placed}
    steps: list[MirrorStep] = [CreateMirror(wanted[key]) for key in wanted.keys() - existing.keys()]
    waits: list[float] = []
    for key, found in existing.items():
        if found.has_finalizer:
            steps.append(UnmarkMirror(key))
        elif key in wanted:
            steps.append(ReportMirror(key, wanted[key].outcome))
        elif found.phase == "Released" or not keep:
            left = (keep - (now - (found.changed or now))).total_seconds()
            if left <= 0:
                steps.append(DeleteMirror(key))
            else:
                waits.append(left)
        else:
            steps.append(ReportMirror(key, ENDED))
            waits.append(keep.total_seconds())
    return MirrorPlan(tuple(steps), min(waits, default=None))


def _percent(card: LedgerCard, part: CardGrant) -> int:
    if card.mode == "MIG":
        profiles = {slot.id: slot.profile for slot in card.slots}
        slices = sum(mig.compute_slices(profiles[slot]) for slot in part.slots)
        return min(WHOLE_CARD, max(1, -(-WHOLE_CARD * slices // mig.COMPUTE_SLICES)))
    return -(-WHOLE_CARD * part.share // card.capacity) if card.mode == "TimeSlice" else part.share
