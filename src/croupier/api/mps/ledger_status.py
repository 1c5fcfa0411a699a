"""Compute the status of a NodeReservation from the result of an audit."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from croupier.api import meta
from croupier.api.meta import Condition
from croupier.api.mps import ledger as wire
from croupier.api.mps import ledger_codec
from croupier.api.mps.ledger import NodeReservation, NodeReservationStatus
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.condition import DesiredCondition

CONSISTENT: Final = "Consistent"
_MAX_FINDINGS: Final = 256
_MAX_MESSAGE: Final = 1024


def status(
    record: NodeReservation, compared: Ledger, findings: Iterable[LedgerFinding], now: datetime
) -> NodeReservationStatus:
    """The new status after an audit of `compared`. It is the old one if nothing but the time changed.

    The audit reads a ledger without its generation, so its result refers to the generation of `record` if
    that has the same content. Otherwise the ledger has changed since, and the next audit will compare it.
    Until then the status keeps the last generation that was compared; 0 if there is none.
    """
    old = record.status
    is_newest = ledger_codec.decode(compared.node, record.spec) == compared
    generation = record.metadata.generation if is_newest else old.observed_generation or 0
    reported = tuple(_encode_finding(finding, old, now) for finding in findings)[:_MAX_FINDINGS]
    new = NodeReservationStatus(
        observed_generation=generation,
        findings=reported,
        last_audit_time=old.last_audit_time,
        conditions=_conditions(reported, old, now=now, generation=generation),
    )
    return old if new == old else replace(new, last_audit_time=now.replace(microsecond=0))


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
    findings: tuple[wire.FindingEntry, ...],
    old: NodeReservationStatus,
    *,
    now: datetime,
    generation: int,
) -> tuple[Condition, ...]:
    """The old conditions with the condition Consistent replaced."""
    desired = DesiredCondition(CONSISTENT, "True", "NothingFound", "")
    if findings:
        found = f"the audit found {len(findings)} differences that it cannot repair"
        desired = DesiredCondition(CONSISTENT, "False", "FindingsLeft", found)
    ours = meta.updated_condition(desired, old.conditions, now=now, generation=generation)
    return (*(condition for condition in old.conditions if condition.type != CONSISTENT), ours)
