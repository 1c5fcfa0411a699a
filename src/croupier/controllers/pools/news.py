"""Events and log lines for changed conditions of a pool."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from croupier.api.meta import Condition
from croupier.core.pools.maintenance import STUCK

LOW: Final = "GPUPoolCapacityLow"


Kind: TypeAlias = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class News:
    reason: str
    sentence: str
    type: Kind = "Normal"


_BY_REASON: Final[dict[str, Kind]] = {
    STUCK: "Warning",
    LOW: "Warning",
    "RolledBack": "Warning",
    "RollingOut": "Normal",
}
_BY_ANSWER: Final[dict[tuple[str, str], tuple[str, Kind]]] = {
    ("Maintenance", "True"): ("Maintenance", "Warning"),
    ("Maintenance", "False"): ("MaintenanceEnded", "Normal"),
    ("Misconfigured", "True"): ("Misconfigured", "Warning"),
    ("Misconfigured", "False"): ("InOrder", "Normal"),
}


def news(old: Iterable[Condition], new: Iterable[Condition]) -> list[News]:
    """The Events for conditions whose status or reason changed, without duplicates."""
    before = {condition.type: condition for condition in old}
    events = (_told(before.get(condition.type), condition) for condition in new)
    return list(dict.fromkeys(event for event in events if event is not None))


def _told(old: Condition | None, new: Condition) -> News | None:
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return None
    if new.reason in _BY_REASON:
        return News(new.reason, new.message, _BY_REASON[new.reason])
    goes_on = old is not None and old.status == new.status
    if (new.type, new.status) not in _BY_ANSWER or (new.status == "False" and (goes_on or old is None)):
        return None
    reason, kind = _BY_ANSWER[new.type, new.status]
    return News(reason, new.message, "Normal" if goes_on else kind)
