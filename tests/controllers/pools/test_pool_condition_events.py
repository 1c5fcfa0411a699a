"""Events for changed conditions of a pool: each relevant change once."""

from datetime import UTC, datetime
from typing import Literal

import pytest

from croupier.api.meta import Condition
from croupier.controllers.pools.condition_events import condition_events


def condition(kind: str, status: Literal["True", "False"], reason: str) -> Condition:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Condition(type=kind, status=status, reason=reason, message="why", last_transition_time=at)


SERVING = condition("Maintenance", "False", "Serving")
DRAINING = condition("Maintenance", "True", "Draining")
REBUILDING = condition("Maintenance", "True", "Rebuilding")
STUCK = condition("Maintenance", "True", "GPUModeChangeStuck")
DRIFTED = condition("Misconfigured", "True", "Drifted")
IN_ORDER = condition("Misconfigured", "False", "InOrder")
JUST_LOW = condition("CapacityLow", "True", "JustLow")
LOW = condition("CapacityLow", "True", "GPUPoolCapacityLow")

CHANGES = {
    "no change": ([DRAINING], [DRAINING], []),
    "a new serving pool": ([], [SERVING, IN_ORDER], []),
    "maintenance starts": ([SERVING], [DRAINING], [("Maintenance", "Warning")]),
    "maintenance continues": ([DRAINING], [REBUILDING], [("Maintenance", "Normal")]),
    "maintenance is stuck": ([DRAINING], [STUCK], [("GPUModeChangeStuck", "Warning")]),
    "maintenance ends": ([REBUILDING], [SERVING], [("MaintenanceEnded", "Normal")]),
    "another reason for serving": ([SERVING], [condition("Maintenance", "False", "PerCard")], []),
    "drift": ([IN_ORDER], [DRIFTED], [("Misconfigured", "Warning")]),
    "drift is repaired": ([DRIFTED], [IN_ORDER], [("InOrder", "Normal")]),
    "capacity is low": ([condition("CapacityLow", "False", "Enough")], [JUST_LOW], []),
    "capacity stays low": ([JUST_LOW], [LOW], [("GPUPoolCapacityLow", "Warning")]),
    "a change is rolled back": (
        [condition("Configured", "False", "Rebuilding")],
        [condition("Configured", "False", "RolledBack")],
        [("RolledBack", "Warning")],
    ),
    "two conditions with the same reason": (
        [DRAINING, condition("Configured", "False", "Draining")],
        [STUCK, condition("Configured", "False", "GPUModeChangeStuck")],
        [("GPUModeChangeStuck", "Warning")],
    ),
}


@pytest.mark.parametrize(("old", "new", "events"), CHANGES.values(), ids=CHANGES)
def test_events_for_changed_conditions(
    old: list[Condition], new: list[Condition], events: list[tuple[str, str]]
) -> None:
    assert [(event.reason, event.type) for event in condition_events(old, new)] == events
