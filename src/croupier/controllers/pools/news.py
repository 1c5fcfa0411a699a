"""What people are told when a pool's conditions change: one Event and one log line for each."""

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
    """Of conditions that have another answer than before, or another reason for it; each thing once."""
    before = {one.type: one for one in old}
    found = (_told(before.get(one.type), one) for one in new)
    return list(dict.fromkeys(one for one in found if one is not None))


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
