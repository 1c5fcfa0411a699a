"""What people are told of a pool: every change of a condition that matters, once."""

from datetime import UTC, datetime
from typing import Literal

import pytest

from croupier.api.meta import Condition
from croupier.controllers.pools.news import news


def said(kind: str, status: Literal["True", "False"], reason: str) -> Condition:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Condition(type=kind, status=status, reason=reason, message="why", last_transition_time=at)


SERVING = said("Maintenance", "False", "Serving")
DRAINING = said("Maintenance", "True", "Draining")
REBUILDING = said("Maintenance", "True", "Rebuilding")
STUCK = said("Maintenance", "True", "GPUModeChangeStuck")
DRIFTED = said("Misconfigured", "True", "Drifted")
IN_ORDER = said("Misconfigured", "False", "InOrder")
JUST_LOW = said("CapacityLow", "True", "JustLow")
LOW = said("CapacityLow", "True", "GPUPoolCapacityLow")

CHANGES = {
    "nothing new": ([DRAINING], [DRAINING], []),
    "a new pool that serves": ([], [SERVING, IN_ORDER], []),
    "it closes": ([SERVING], [DRAINING], [("Maintenance", "Warning")]),
    "it goes on": ([DRAINING], [REBUILDING], [("Maintenance", "Normal")]),
    "it waits too long": ([DRAINING], [STUCK], [("GPUModeChangeStuck", "Warning")]),
    "it opens": ([REBUILDING], [SERVING], [("MaintenanceEnded", "Normal")]),
    "another word for serving": ([SERVING], [said("Maintenance", "False", "PerCard")], []),
    "it is not as it should be": ([IN_ORDER], [DRIFTED], [("Misconfigured", "Warning")]),
    "it is again": ([DRIFTED], [IN_ORDER], [("InOrder", "Normal")]),
    "little is left": ([said("CapacityLow", "False", "Enough")], [JUST_LOW], []),
    "for long": ([JUST_LOW], [LOW], [("GPUPoolCapacityLow", "Warning")]),
    "a change was taken back": (
        [said("Configured", "False", "Rebuilding")],
        [said("Configured", "False", "RolledBack")],
        [("RolledBack", "Warning")],
    ),
    "two conditions say the same": (
        [DRAINING, said("Configured", "False", "Draining")],
        [STUCK, said("Configured", "False", "GPUModeChangeStuck")],
        [("GPUModeChangeStuck", "Warning")],
    ),
}


@pytest.mark.parametrize(("old", "new", "told"), CHANGES.values(), ids=CHANGES)
def test_what_is_told(old: list[Condition], new: list[Condition], told: list[tuple[str, str]]) -> None:
    assert [(one.reason, one.type) for one in news(old, new)] == told
