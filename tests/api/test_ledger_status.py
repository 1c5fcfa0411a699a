"""The status of a NodeReservation refers to the generation that the audit compared, and to no other."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from croupier.api.meta import ObjectMeta
from croupier.api.mps import NodeReservation, ledger_codec, ledger_status
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
FREE = Ledger("node-1", (LedgerCard("gpu-0", 0),))
HELD = replace(FREE, cards=(LedgerCard("gpu-0", 0, holders={"a/b/c": 50}),))
LEAK = LedgerFinding("Leak", "a/b has ended and still holds 50 percent", "gpu-0", "a/b/c")


def record(ledger: Ledger, generation: int) -> NodeReservation:
    meta = ObjectMeta(name="node-1", generation=generation)
    return NodeReservation(metadata=meta, spec=ledger_codec.encode(ledger))


def audited(record: NodeReservation, compared: Ledger, *findings: LedgerFinding) -> NodeReservation:
    return msgspec.structs.replace(record, status=ledger_status.status(record, compared, findings, NOON))


def generations(record: NodeReservation) -> tuple[str, int | None, int | None]:
    (condition,) = record.status.conditions
    return condition.status, condition.observed_generation, record.status.observed_generation


def test_the_generation_is_that_of_the_ledger_that_was_compared():
    assert generations(audited(record(FREE, 7), FREE)) == ("True", 7, 7)
    assert generations(audited(record(HELD, 8), HELD, LEAK)) == ("False", 8, 8)


def test_a_ledger_that_changed_after_the_audit_is_not_observed():
    before = audited(record(FREE, 7), FREE)
    changed = msgspec.structs.replace(record(HELD, 8), status=before.status)

    assert audited(changed, FREE) == changed, "nothing to write until the next audit"
    assert generations(audited(changed, FREE, LEAK)) == ("False", 7, 7)
    assert generations(audited(changed, HELD)) == ("True", 8, 8)


def test_a_ledger_that_changed_before_its_first_audit_ended_is_not_observed():
    assert generations(audited(record(HELD, 2), FREE)) == ("True", 0, 0), "less than any generation"


def test_an_audit_that_finds_the_same_changes_nothing():
    before = audited(record(HELD, 8), HELD, LEAK)

    later = ledger_status.status(before, HELD, (LEAK,), NOON + timedelta(minutes=1))

    assert later == before.status
