"""The ledger as it is decided upon, from and to the ledger as it stands in the API server.

The wire form is shaped by what a write costs, the core form by what a decision reads. Both say
the same: what is written and read again is equal.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from croupier.api.mps import ledger as wire
from croupier.api.mps.holder import NEVER
from croupier.api.mps.ledger import NodeReservationSpec
from croupier.core.ledgers.ledger import Card, Ledger, Slot
from croupier.core.pods.want import WHOLE

_SECOND = timedelta(seconds=1)


def read(node: str, spec: NodeReservationSpec) -> Ledger:
    return Ledger(
        node,
        tuple(_read_card(card) for card in spec.cards),
        {holder: _until(text) for holder, text in spec.held.items()},
        spec.reservations,
    )


def write(ledger: Ledger) -> NodeReservationSpec:
    return NodeReservationSpec(
        cards=tuple(_write_card(card) for card in ledger.cards),
        held={holder: moment(until) for holder, until in ledger.held.items()},
        reservations=dict(ledger.reservations),
    )


def whole(until: datetime | None) -> datetime | None:
    """A moment as it can be written: in whole seconds, later rather than too early."""
    if until is None or not until.microsecond:
        return until
    return until.replace(microsecond=0) + _SECOND


@lru_cache(maxsize=4096)
def moment(until: datetime | None) -> str:
    """`2030-01-31T12:00:00Z`, or `never`."""
    late = whole(until)
    return NEVER if late is None else f"{late.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"


@lru_cache(maxsize=4096)
def _until(text: str) -> datetime | None:
    """A date that no calendar has (the rules of the API server let 30 February pass) never comes."""
    if text == NEVER:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _read_card(card: wire.Card) -> Card:
    return Card(
        card.id,
        card.index,
        card.mode,
        card.epoch,
        card.capacity_percent or card.slices or WHOLE,
        card.healthy,
        card.pool,
        tuple(Slot(s.id, s.profile, s.start, s.size, s.holder) for s in card.slots or ()),
        card.holders,
    )


def _write_card(card: Card) -> wire.Card:
    return wire.Card(
        id=card.id,
        index=card.index,
        mode=card.mode,
        epoch=card.epoch,
        healthy=card.healthy,
        pool=card.pool,
        capacity_percent=card.capacity if card.mode == "Percent" else None,
        slots=_write_slots(card) if card.mode == "MIG" else None,
        slices=card.capacity if card.mode == "TimeSlice" else None,
        holders=dict(card.holders),
    )


def _write_slots(card: Card) -> tuple[wire.Slot, ...]:
    return tuple(
        wire.Slot(id=s.id, profile=s.profile, start=s.start, size=s.size, holder=s.holder) for s in card.slots
    )
