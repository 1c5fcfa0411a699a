"""What the files of a control group say, as numbers; version 1 counts in nanoseconds, 2 in microseconds.

A group may vanish between two of its files, and a kernel may leave a line out: what cannot be read is None,
never 0, because a 0 would look like a container that started again.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Throttling:
    """In microseconds, and in periods."""

    throttled: int = 0
    periods: int = 0
    throttled_periods: int = 0


@dataclass(frozen=True, slots=True)
class Quota:
    """In microseconds; None: no limit."""

    quota: int | None
    period: int


def number(text: str | None) -> int | None:
    stripped = (text or "").strip()
    return int(stripped) if stripped.removeprefix("-").isdecimal() else None


def pairs(text: str | None) -> Mapping[str, int]:
    """`nr_periods 12` and so on; lines that are none are left out."""
    found = {}
    for line in (text or "").splitlines():
        name, _, rest = line.partition(" ")
        if (value := number(rest)) is not None:
            found[name] = value
    return found


def throttling_v1(stat: str | None) -> Throttling | None:
    told = pairs(stat)
    if "throttled_time" not in told:
        return None
    return Throttling(told["throttled_time"] // 1000, told.get("nr_periods", 0), told.get("nr_throttled", 0))


def throttling_v2(stat: str | None) -> Throttling:
    """Only a group with a limit has these lines."""
    told = pairs(stat)
    return Throttling(told.get("throttled_usec", 0), told.get("nr_periods", 0), told.get("nr_throttled", 0))


def usage_v1(usage: str | None) -> int | None:
    nanos = number(usage)
    return None if nanos is None else nanos // 1000


def usage_v2(stat: str | None) -> int | None:
    return pairs(stat).get("usage_usec")


def quota_v1(quota: str | None, period: str | None) -> Quota | None:
    most, each = number(quota), number(period)
    if most is None or not each:
        return None
    return Quota(most if most > 0 else None, each)


def quota_v2(cpu_max: str | None) -> Quota | None:
    """`20000 100000` or `max 100000`."""
    most, _, each = (cpu_max or "").strip().partition(" ")
    period = number(each)
    if not period or not (most == "max" or most.isdecimal()):
        return None
    return Quota(None if most == "max" else int(most), period)
