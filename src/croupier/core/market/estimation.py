"""Estimates how much CPU a container would use without throttling, from two readings of its counters.

The usage is known; the demand is not. Throttled time is the only evidence, and it overstates the demand: a
thread that needed one more millisecond waits for the rest of the period, and every CPU with a waiting thread
counts. So usage plus throttled time gives a direction, not an amount: the estimate may at most double in a
second, and while a quota throttles the container it may not exceed twice that quota. A limit cannot more
than double in one step anyway, and under the new limit the next readings show the demand.

A rise is followed at once and a fall slowly: too little CPU hurts the pod now, too much CPU hurts its
neighbours only later.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from croupier.core.market.units import MICROS, SECOND

FALL_TIME: Final = 15 * SECOND
"""Time constant of a fall: after this time the estimate has followed about two thirds of it."""
AVERAGE_TIME: Final = 60 * SECOND
MAX_GAP: Final = 30 * SECOND
"""Readings further apart are not compared: too much may have happened in between."""
_MAX_DOUBLINGS: Final = 3

UnusableReading: TypeAlias = Literal["", "first", "missing", "reset", "gap"]


@dataclass(frozen=True, slots=True)
class CPUSample:
    """Counters of a container's cgroup, as version 1 and 2 both have them; in microseconds."""

    at: int
    usage: int
    throttled: int = 0
    periods: int = 0
    throttled_periods: int = 0
    quota: int | None = None
    """CPU time per period; None without a limit."""
    period: int = 100_000
    container: str = ""
    """The container id of the runtime. A new id means a new cgroup, whose counters start at 0."""


@dataclass(frozen=True, slots=True)
class DemandEstimate:
    """In millionths of a CPU."""

    usage: int = 0
    """Actual usage, averaged over a minute so that the supply for other pods is stable."""
    demand: int = 0
    """Estimated usage without throttling."""
    throttling: int = 0
    """Throttled periods in the last interval, in thousandths of all periods."""
    sample: CPUSample | None = None
    """The reading with which the next one is compared."""
    doubt: UnusableReading = "first"
    """Why the last reading could not be used; empty if it could. `first`: no reading was usable so far."""

    def blind(self, now: int) -> bool:
        """No usable reading, or none for too long: the limit must not be changed."""
        return self.doubt == "first" or self.sample is None or now - self.sample.at > MAX_GAP


NO_ESTIMATE: Final = DemandEstimate()


def estimate(before: DemandEstimate, sample: CPUSample | None, *, target: int = 0) -> DemandEstimate:
    """The estimate after one more reading; `sample` is None if the counters could not be read.

    `target`: thousandths of periods in which throttling does not count as demand.
    """
    last = before.sample
    if sample is None:
        return _unchanged(before, last, "missing")
    if last is None:
        return _unchanged(before, sample, "first")
    if sample.at <= last.at:
        return before  # the same reading again, or an older one
    if _reset(last, sample):
        return _unchanged(before, sample, "reset")
    if sample.at - last.at > MAX_GAP:
        return _unchanged(before, sample, "gap")

    gap = sample.at - last.at
    used = (sample.usage - last.usage) * SECOND // gap
    throttling = _throttling(last, sample)
    wanted = used
    if throttling > target:
        wanted += (sample.throttled - last.throttled) * SECOND // gap
        wanted = _bounded(wanted, used, before=before, sample=sample, gap=gap)
    return DemandEstimate(
        usage=used if before.doubt == "first" else _smoothed(before.usage, used, gap, memory=AVERAGE_TIME),
        demand=_follow_demand(before.demand, max(wanted, used), gap),
        throttling=throttling,
        sample=sample,
        doubt="",
    )


def _unchanged(before: DemandEstimate, sample: CPUSample | None, doubt: UnusableReading) -> DemandEstimate:
    return DemandEstimate(
        before.usage, before.demand, 0, sample, "first" if before.doubt == "first" else doubt
    )


def _reset(last: CPUSample, sample: CPUSample) -> bool:
    """The container restarted or a counter fell, so the difference is meaningless."""
    return (
        sample.container != last.container
        or sample.usage < last.usage
        or sample.throttled < last.throttled
        or sample.periods < last.periods
        or sample.throttled_periods < last.throttled_periods
    )


def _throttling(last: CPUSample, sample: CPUSample) -> int:
    periods = sample.periods - last.periods
    return 1000 * (sample.throttled_periods - last.throttled_periods) // periods if periods else 0


def _bounded(wanted: int, used: int, *, before: DemandEstimate, sample: CPUSample, gap: int) -> int:
    """Usage plus throttled time, bounded by a doubling per second and by twice the quota."""
    known = max(before.demand, used, MICROS)
    most = _doubled(known, gap) if before.demand else 2 * known
    if sample.quota is not None:
        most = min(most, 2 * sample.quota * SECOND // sample.period)
    return min(wanted, most)


def _doubled(amount: int, gap: int) -> int:
    """amount × 2^seconds or a little less: a fraction of a second is interpolated linearly."""
    seconds, rest = divmod(gap, SECOND)
    if seconds >= _MAX_DOUBLINGS:
        return amount << _MAX_DOUBLINGS
    return (amount << seconds) * (100 * SECOND + 69 * rest) // (100 * SECOND)


def _follow_demand(before: int, seen: int, gap: int) -> int:
    return seen if seen >= before else _smoothed(before, seen, gap, memory=FALL_TIME)


def _smoothed(before: int, seen: int, gap: int, *, memory: int) -> int:
    return seen + (before - seen) * memory // (memory + gap)
