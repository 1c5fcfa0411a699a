"""Events and log lines for changed conditions of a pool."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from croupier.api.meta import Condition
from croupier.core.pools.access_subjects import ACCESS_UNRESOLVED
from croupier.core.pools.maintenance import NOT_STARTED, STUCK
from croupier.kube.controller.event_series import EventType

LOW: Final = "GPUPoolCapacityLow"


@dataclass(frozen=True, slots=True)
class ConditionEvent:
    reason: str
    sentence: str
    type: EventType = "Normal"


_BY_REASON: Final[dict[str, EventType]] = {
    STUCK: "Warning",
    LOW: "Warning",
    "RolledBack": "Warning",
    NOT_STARTED: "Warning",
    "RollingOut": "Normal",
}
_BY_STATUS: Final[dict[tuple[str, str], tuple[str, EventType]]] = {
    ("Maintenance", "True"): ("Maintenance", "Warning"),
    ("Maintenance", "False"): ("MaintenanceEnded", "Normal"),
    ("Misconfigured", "True"): ("Misconfigured", "Warning"),
    ("Misconfigured", "False"): ("InOrder", "Normal"),
    (ACCESS_UNRESOLVED, "True"): (ACCESS_UNRESOLVED, "Warning"),
    (ACCESS_UNRESOLVED, "False"): ("AccessResolved", "Normal"),
}


def condition_events(old: Iterable[Condition], new: Iterable[Condition]) -> list[ConditionEvent]:
    """The Events for conditions whose status or reason changed, without duplicates."""
    before = {condition.type: condition for condition in old}
    events = (_event(before.get(condition.type), condition) for condition in new)
    return list(dict.fromkeys(event for event in events if event is not None))


def _event(old: Condition | None, new: Condition) -> ConditionEvent | None:
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return None
    if new.reason in _BY_REASON:
        return ConditionEvent(new.reason, new.message, _BY_REASON[new.reason])
    goes_on = old is not None and old.status == new.status
    if (new.type, new.status) not in _BY_STATUS or (new.status == "False" and (goes_on or old is None)):
        return None
    reason, kind = _BY_STATUS[new.type, new.status]
    return ConditionEvent(reason, new.message, "Normal" if goes_on else kind)
