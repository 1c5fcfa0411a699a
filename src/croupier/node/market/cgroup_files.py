"""Parses the files of a cgroup; version 1 counts in nanoseconds, version 2 in microseconds.

A cgroup may vanish between two reads, and a kernel may omit a line: an unreadable value is None, never 0,
because 0 would look like a restarted container.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")
"""The kernel counts in 64 bits, which is at most 20 digits."""


@dataclass(frozen=True, slots=True)
class CgroupThrottling:
    """In microseconds, and in periods."""

    throttled: int = 0
    periods: int = 0
    throttled_periods: int = 0


@dataclass(frozen=True, slots=True)
class CgroupQuota:
    """In microseconds; None: no limit."""

    quota: int | None
    period: int


def number(text: str | None) -> int | None:
    stripped = (text or "").strip()
    return int(stripped) if _NUMBER.fullmatch(stripped) else None


def pairs(text: str | None) -> Mapping[str, int]:
    """Lines such as `nr_periods 12`; other lines are ignored."""
    values = {}
    for line in (text or "").splitlines():
        name, _, rest = line.partition(" ")
        if (value := number(rest)) is not None and value >= 0:
            values[name] = value
    return values


def throttling_v1(stat: str | None) -> CgroupThrottling | None:
    values = pairs(stat)
    if "throttled_time" not in values:
        return None
    throttled = values["throttled_time"] // 1000
    return CgroupThrottling(throttled, values.get("nr_periods", 0), values.get("nr_throttled", 0))


def throttling_v2(stat: str | None) -> CgroupThrottling:
    """Only a cgroup with a limit has these lines."""
    values = pairs(stat)
    throttled = values.get("throttled_usec", 0)
    return CgroupThrottling(throttled, values.get("nr_periods", 0), values.get("nr_throttled", 0))


def usage_v1(usage: str | None) -> int | None:
    nanos = number(usage)
    return None if nanos is None or nanos < 0 else nanos // 1000


def usage_v2(stat: str | None) -> int | None:
    return pairs(stat).get("usage_usec")


def quota_v1(quota: str | None, period: str | None) -> CgroupQuota | None:
    most, each = number(quota), number(period)
    if most is None or not each or each < 0:
        return None
    return CgroupQuota(most if most > 0 else None, each)


def quota_v2(cpu_max: str | None) -> CgroupQuota | None:
    """`20000 100000` or `max 100000`."""
    most, _, each = (cpu_max or "").strip().partition(" ")
    period = number(each)
    quota = number(most)
    if not period or period < 0 or not (most == "max" or (quota is not None and quota >= 0)):
        return None
    return CgroupQuota(quota, period)
