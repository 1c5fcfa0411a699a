"""Compute the status of a NodeReservation from its spec and the findings of the audit."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from croupier.api import meta
from croupier.api.meta import Condition
from croupier.api.mps import ledger as wire
from croupier.api.mps.ledger import NodeReservationStatus
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.core.model.condition import DesiredCondition

CONSISTENT: Final = "Consistent"
_MAX_FINDINGS: Final = 256
_MAX_MESSAGE: Final = 1024


def status(
    ledger: Ledger, findings: Iterable[LedgerFinding], old: NodeReservationStatus, now: datetime
) -> NodeReservationStatus:
    """The new status. It is `old` if nothing but the time changed."""
    reported = tuple(_encode_finding(finding, old, now) for finding in findings)[:_MAX_FINDINGS]
    new = NodeReservationStatus(
        cards=sum(not card.is_retired for card in ledger.cards),
        holders=len(ledger.holders()),
        free=free(ledger.cards),
        findings=reported,
        last_audit_time=old.last_audit_time,
        conditions=_conditions(reported, old, now),
    )
    return old if new == old else replace(new, last_audit_time=now.replace(microsecond=0))


def free(cards: Iterable[LedgerCard]) -> wire.FreeCapacity:
    """The free capacity of the healthy cards."""
    cards = [card for card in cards if card.healthy]
    shared = [card.free for card in cards if card.mode == "Percent"]
    slices = [card.free for card in cards if card.mode == "TimeSlice"]
    whole = [card.is_free for card in cards if card.mode in ("Percent", "Exclusive")]
    return wire.FreeCapacity(
        percent=sum(shared) if shared else None,
        cards=sum(whole) if whole else None,
        slots=dict(sorted(Counter(slot.profile for card in cards for slot in card.free_slots()).items())),
        slices=sum(slices) if slices else None,
    )


def _encode_finding(finding: LedgerFinding, old: NodeReservationStatus, now: datetime) -> wire.FindingEntry:
    """A finding keeps the time at which it was first found, even if its message changes."""
    subject = (finding.kind, finding.card, finding.holder)
    known = (before.since for before in old.findings if (before.kind, before.card, before.holder) == subject)
    return wire.FindingEntry(
        kind=finding.kind,
        message=finding.message[:_MAX_MESSAGE],
        card=finding.card,
        holder=finding.holder,
        since=next(known, None) or now.replace(microsecond=0),
    )


def _conditions(
    findings: tuple[wire.FindingEntry, ...], old: NodeReservationStatus, now: datetime
) -> tuple[Condition, ...]:
    """The old conditions with the condition Consistent replaced."""
    desired = DesiredCondition(CONSISTENT, "True", "NothingFound", "")
    if findings:
        found = f"the audit found {len(findings)} differences that it cannot repair"
        desired = DesiredCondition(CONSISTENT, "False", "FindingsLeft", found)
    ours = meta.updated_condition(desired, old.conditions, now)
    return (*(condition for condition in old.conditions if condition.type != CONSISTENT), ours)
