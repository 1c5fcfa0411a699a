"""How much CPU a container would use if nothing held it back, from two readings of its counters.

What it used is known; what it would have used is not. The time it was throttled is the only trace, and it
counts too much: a thread that needed one more millisecond waits for the rest of the period, and every CPU
with a waiting thread counts. So the sum of both is taken as a direction, not as an amount: the estimate may
at most double in a second, and while a quota holds the container back it may not exceed twice that quota. A
limit cannot more than double in one step anyway, and under the new one the container shows what it does
with it.

A rise is believed at once and a fall slowly: too little CPU hurts the pod now, too much only its neighbours
later.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from croupier.core.market.units import MICROS, SECOND

MEMORY: Final = 15 * SECOND
"""How slowly a fall is believed: after so long about two thirds of it."""
AVERAGE: Final = 60 * SECOND
LONGEST_GAP: Final = 30 * SECOND
"""Readings further apart are no pair: too much may have happened in between."""
_MOST_DOUBLINGS: Final = 3

Doubt: TypeAlias = Literal["", "first", "missing", "reset", "gap"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters of a container's cgroup, as version 1 and 2 both have them; in microseconds."""

    at: int
    usage: int
    throttled: int = 0
    periods: int = 0
    throttled_periods: int = 0
    quota: int | None = None
    """CPU time it may use in a period; None without a limit."""
    period: int = 100_000
    container: str = ""
    """The runtime's id: another one is another cgroup, whose counters began at 0."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """In millionths of a CPU."""

    usage: int = 0
    """What it really uses, averaged over a minute: what others cannot have is no matter of a moment."""
    demand: int = 0
    """What it would use."""
    throttling: int = 0
    """Periods in which it was held back, in thousandths of all, in the last interval."""
    sample: Sample | None = None
    """The reading the next one is compared with."""
    doubt: Doubt = "first"
    """Why the last reading taught nothing, if it did not; `first`: none ever did."""

    def blind(self, now: int) -> bool:
        """Nothing is known, or nothing new for too long: no ground to move a limit on."""
        return self.doubt == "first" or self.sample is None or now - self.sample.at > LONGEST_GAP


NOTHING: Final = Estimate()


def estimate(before: Estimate, sample: Sample | None, *, target: int = 0) -> Estimate:
    """What is known after one more reading, if there was one.

    `target`: thousandths of its periods in which it may be throttled without being taken to want more.
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
    if sample.at - last.at > LONGEST_GAP:
        return _unchanged(before, sample, "gap")

    gap = sample.at - last.at
    used = (sample.usage - last.usage) * SECOND // gap
    throttling = _throttling(last, sample)
    wanted = used
    if throttling > target:
        wanted += (sample.throttled - last.throttled) * SECOND // gap
        wanted = _believable(wanted, used, before=before, sample=sample, gap=gap)
    return Estimate(
        usage=used if before.doubt == "first" else _drawn(before.usage, used, gap, memory=AVERAGE),
        demand=_follow(before.demand, max(wanted, used), gap),
        throttling=throttling,
        sample=sample,
        doubt="",
    )


def _unchanged(before: Estimate, sample: Sample | None, doubt: Doubt) -> Estimate:
    return Estimate(before.usage, before.demand, 0, sample, "first" if before.doubt == "first" else doubt)


def _reset(last: Sample, sample: Sample) -> bool:
    """A restarted container, or counters that fell: the difference means nothing."""
    return (
        sample.container != last.container
        or sample.usage < last.usage
        or sample.throttled < last.throttled
        or sample.periods < last.periods
        or sample.throttled_periods < last.throttled_periods
    )


def _throttling(last: Sample, sample: Sample) -> int:
    periods = sample.periods - last.periods
    return 1000 * (sample.throttled_periods - last.throttled_periods) // periods if periods else 0


def _believable(wanted: int, used: int, *, before: Estimate, sample: Sample, gap: int) -> int:
    """Usage plus throttled time, held to a doubling in a second and to twice the quota."""
    known = max(before.demand, used, MICROS)
    most = _doubled(known, gap) if before.demand else 2 * known
    if sample.quota is not None:
        most = min(most, 2 * sample.quota * SECOND // sample.period)
    return min(wanted, most)


def _doubled(amount: int, gap: int) -> int:
    """amount × 2^seconds or a little less: a started second by the tangent, which lies below the curve."""
    seconds, rest = divmod(gap, SECOND)
    if seconds >= _MOST_DOUBLINGS:
        return amount << _MOST_DOUBLINGS
    return (amount << seconds) * (100 * SECOND + 69 * rest) // (100 * SECOND)


def _follow(before: int, seen: int, gap: int) -> int:
    return seen if seen >= before else _drawn(before, seen, gap, memory=MEMORY)


def _drawn(before: int, seen: int, gap: int, *, memory: int) -> int:
    return seen + (before - seen) * memory // (memory + gap)
