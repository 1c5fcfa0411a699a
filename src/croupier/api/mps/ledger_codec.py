"""Convert between NodeReservation (the ledger in the API server) and the ledger of the core.

The wire form is optimized for cheap writes, the core form for decisions. Both contain the same information:
decoding an encoded ledger gives an equal ledger. The summary of the wire form is derived and never decoded.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from croupier.api import withheld
from croupier.api.mps import ledger as wire
from croupier.api.mps import ledger_summary
from croupier.api.mps.ledger import NEVER, NodeReservationSpec, NodeReservationStatus
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard, MigSlot
from croupier.core.model.card_request import WHOLE_CARD

_SECOND = timedelta(seconds=1)


def decode(node: str, spec: NodeReservationSpec) -> Ledger:
    return Ledger(
        node,
        tuple(_decode_card(card) for card in spec.cards),
        {holder: _decode_expiry(text) for holder, text in spec.held.items()},
        spec.reservations,
    )


def findings(status: NodeReservationStatus) -> tuple[LedgerFinding, ...]:
    """The findings of the last audit."""
    return tuple(
        LedgerFinding(finding.kind, finding.message, finding.card, finding.holder)
        for finding in status.findings
    )


def encode(ledger: Ledger) -> NodeReservationSpec:
    return NodeReservationSpec(
        cards=tuple(_encode_card(card) for card in ledger.cards),
        held={holder: encode_expiry(until) for holder, until in ledger.held.items()},
        reservations=dict(ledger.reservations),
        summary=ledger_summary.summary(ledger),
    )


def round_up(until: datetime | None) -> datetime | None:
    """Round up to whole seconds, the precision of the wire form."""
    if until is None or not until.microsecond:
        return until
    return until.replace(microsecond=0) + _SECOND


@lru_cache(maxsize=4096)
def encode_expiry(until: datetime | None) -> str:
    """The wire form of an expiry: `2030-01-31T12:00:00Z`, or `never`."""
    late = round_up(until)
    return NEVER if late is None else f"{late.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"


@lru_cache(maxsize=4096)
def _decode_expiry(text: str) -> datetime | None:
    """Decode an expiry. An impossible date such as 30 February, which the CEL rules admit, means never."""
    if text == NEVER:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _decode_card(card: wire.CardEntry) -> LedgerCard:
    return LedgerCard(
        card.id,
        card.index,
        card.mode,
        card.epoch,
        card.capacity_percent or card.slices or WHOLE_CARD,
        card.healthy,
        card.pool,
        tuple(MigSlot(s.id, s.profile, s.start, s.size, s.holder) for s in card.slots or ()),
        card.holders,
        card.min_percent or 1,
        withheld.decode(card.withheld),
    )


def _encode_card(card: LedgerCard) -> wire.CardEntry:
    return wire.CardEntry(
        id=card.id,
        index=card.index,
        mode=card.mode,
        epoch=card.epoch,
        healthy=card.healthy,
        withheld=withheld.encode(card.withheld),
        pool=card.pool,
        capacity_percent=card.capacity if card.mode == "Percent" else None,
        min_percent=card.smallest if card.smallest > 1 else None,
        slots=_encode_slots(card) if card.mode == "MIG" else None,
        slices=card.capacity if card.mode == "TimeSlice" else None,
        holders=dict(card.holders),
    )


def _encode_slots(card: LedgerCard) -> tuple[wire.SlotEntry, ...]:
    return tuple(
        wire.SlotEntry(id=s.id, profile=s.profile, start=s.start, size=s.size, holder=s.holder)
        for s in card.slots
    )
