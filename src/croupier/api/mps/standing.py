"""The status of a NodeReservation: what follows from its spec, and what the audit found."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from croupier.api.meta import Condition
from croupier.api.mps import ledger as wire
from croupier.api.mps.ledger import NodeReservationStatus
from croupier.core.ledgers.finding import Finding
from croupier.core.ledgers.ledger import Card, Ledger

CONSISTENT: Final = "Consistent"
_MOST: Final = 256
_LONGEST: Final = 1024


def status(
    ledger: Ledger, findings: Iterable[Finding], old: NodeReservationStatus, now: datetime
) -> NodeReservationStatus:
    """The status as it should be; equal to `old` if nothing changed, whatever time it is."""
    found = tuple(_wire(one, old, now) for one in findings)[:_MOST]
    new = NodeReservationStatus(
        cards=len(ledger.cards),
        holders=len(ledger.holders()),
        free=free(ledger.cards),
        findings=found,
        last_audit_time=old.last_audit_time,
        conditions=_conditions(found, old, now),
    )
    return old if new == old else replace(new, last_audit_time=now.replace(microsecond=0))


def free(cards: Iterable[Card]) -> wire.Free:
    """What is left on healthy cards."""
    cards = [card for card in cards if card.healthy]
    shared = [card.free for card in cards if card.mode == "Percent"]
    slices = [card.free for card in cards if card.mode == "TimeSlice"]
    whole = [card.is_free for card in cards if card.mode in ("Percent", "Exclusive")]
    return wire.Free(
        percent=sum(shared) if shared else None,
        cards=sum(whole) if whole else None,
        slots=dict(sorted(Counter(slot.profile for card in cards for slot in card.free_slots()).items())),
        slices=sum(slices) if slices else None,
    )


def _wire(one: Finding, old: NodeReservationStatus, now: datetime) -> wire.Finding:
    """A finding keeps the time it was first seen, however its numbers change."""
    known = (f.since for f in old.findings if (f.kind, f.card, f.holder) == (one.kind, one.card, one.holder))
    return wire.Finding(
        kind=one.kind,
        message=one.message[:_LONGEST],
        card=one.card,
        holder=one.holder,
        since=next(known, None) or now.replace(microsecond=0),
    )


def _conditions(
    found: tuple[wire.Finding, ...], old: NodeReservationStatus, now: datetime
) -> tuple[Condition, ...]:
    """Ours among those others may have set."""
    known = next((one for one in old.conditions if one.type == CONSISTENT), None)
    value, reason = ("False", "FindingsLeft") if found else ("True", "NothingFound")
    since = known.last_transition_time if known is not None and known.status == value else now
    ours = Condition(
        type=CONSISTENT,
        status="False" if found else "True",
        reason=reason,
        message=f"the audit left {len(found)} findings to people" if found else "",
        last_transition_time=since.replace(microsecond=0),
    )
    return (*(one for one in old.conditions if one.type != CONSISTENT), ours)
