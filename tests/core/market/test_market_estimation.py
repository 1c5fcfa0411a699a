"""Demand from counters: an upper bound under throttling, the usage otherwise, and resets are ignored."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.market import estimation
from croupier.core.market.estimation import NO_ESTIMATE, CPUSample, DemandEstimate
from croupier.core.market.units import MICROS, SECOND

CPU = SECOND
"""One CPU in millionths."""


class Cgroup:
    """A container whose counters advance second by second."""

    def __init__(self, limit: float | None = 1.0) -> None:
        self.at = self.usage = self.throttled = self.periods = self.throttled_periods = 0
        self.limit = limit
        self.container = "first"

    def second(
        self, used: float, *, throttled: float = 0, share: float = 1.0, length: float = 1
    ) -> CPUSample:
        self.at += int(length * SECOND)
        self.usage += int(used * length * SECOND)
        self.throttled += int(throttled * length * SECOND)
        self.periods += 10
        self.throttled_periods += int(10 * share) if throttled else 0
        return self.reading()

    def reading(self) -> CPUSample:
        quota = None if self.limit is None else int(self.limit * 100_000)
        counters = (self.usage, self.throttled, self.periods, self.throttled_periods)
        return CPUSample(self.at, *counters, quota, 100_000, self.container)


def learned(cgroup: Cgroup, *used: float) -> DemandEstimate:
    known = estimation.estimate(NO_ESTIMATE, cgroup.reading())
    for one in used:
        known = estimation.estimate(known, cgroup.second(one))
    return known


def test_without_throttling_demand_is_usage():
    assert learned(Cgroup(), 0.25).demand == CPU // 4


def test_an_idle_second_is_a_reading():
    cgroup = Cgroup()
    known = learned(cgroup, 0.25)

    idle = estimation.estimate(known, cgroup.second(0))

    assert (idle.doubt, idle.sample) == ("", cgroup.reading())


def test_without_periods_nothing_is_throttled():
    """The kernel counts periods only while a quota is set and the container runs."""
    cgroup = Cgroup(limit=None)
    known = learned(cgroup, 0.25)
    before = cgroup.periods
    sample = replace(cgroup.second(0.25), periods=before)

    assert estimation.estimate(known, sample).throttling == 0


def test_throttled_time_counts_but_the_estimate_at_most_doubles_in_a_second():
    """A thread that wants 0.2 CPU of its 0.1 waits 90 of 100 ms: usage plus throttled time is 1.0."""
    cgroup = Cgroup(limit=None)
    known = learned(cgroup, 0.1)

    grown = []
    for _ in range(5):
        known = estimation.estimate(known, cgroup.second(0.1, throttled=0.9))
        grown.append(known.demand / CPU)

    assert grown == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_under_a_quota_the_estimate_stays_below_twice_the_quota():
    cgroup = Cgroup(limit=0.1)
    known = learned(cgroup, 0.1)
    for _ in range(10):
        known = estimation.estimate(known, cgroup.second(0.1, throttled=3.9))

    assert known.demand == 2 * CPU // 10


def test_throttling_within_the_target_is_no_demand():
    cgroup = Cgroup()
    known = learned(cgroup, 0.5)
    slight = cgroup.second(0.5, throttled=0.3, share=0.1)

    assert estimation.estimate(known, slight, target=100).demand == CPU // 2
    assert estimation.estimate(known, slight, target=99).demand > CPU // 2


def test_a_rise_is_followed_at_once_and_a_fall_slowly():
    cgroup = Cgroup()
    known = learned(cgroup, 0.1, 0.9)
    assert known.demand == 9 * CPU // 10

    falls = []
    for _ in range(60):
        known = estimation.estimate(known, cgroup.second(0.1))
        falls.append(known.demand)
    assert falls == sorted(falls, reverse=True)
    assert falls[0] > 8 * CPU // 10
    assert falls[14] < CPU // 2
    assert falls[59] < CPU // 5


def restarted(cgroup: Cgroup) -> CPUSample:
    fresh = Cgroup()
    fresh.at, fresh.container = cgroup.at, "second"
    return fresh.second(0.9)


def counted_back(cgroup: Cgroup) -> CPUSample:
    cgroup.usage = 0
    return cgroup.second(0)


TEACH_NOTHING = {
    "a container that was restarted": (restarted, "reset"),
    "counters that fell": (counted_back, "reset"),
    "no reading": (lambda _: None, "missing"),
    "a reading after a long gap": (lambda cgroup: cgroup.second(0.9, length=31), "gap"),
}


@pytest.mark.parametrize(("reading", "doubt"), TEACH_NOTHING.values(), ids=TEACH_NOTHING)
def test_an_unusable_reading_keeps_the_estimate(reading, doubt):
    cgroup = Cgroup()
    known = learned(cgroup, 0.3)
    after = estimation.estimate(known, reading(cgroup))

    assert (after.demand, after.usage, after.throttling) == (known.demand, known.usage, 0)
    assert after.doubt == doubt


def test_after_a_reset_the_next_pair_counts_again():
    cgroup = Cgroup()
    known = estimation.estimate(learned(cgroup, 0.3), restarted(cgroup))
    fresh = Cgroup()
    fresh.at, fresh.usage, fresh.periods, fresh.container = cgroup.at + SECOND, 900_000, 10, "second"
    known = estimation.estimate(known, fresh.second(0.7))

    assert known.doubt == ""
    assert known.demand == 7 * CPU // 10


def test_a_missed_second_is_averaged_with_the_next():
    cgroup = Cgroup()
    known = estimation.estimate(learned(cgroup, 0.2), None)
    cgroup.second(0.2)
    known = estimation.estimate(known, cgroup.second(0.6))

    assert (known.demand, known.doubt) == (4 * CPU // 10, "")


def test_an_estimate_needs_two_readings_and_expires():
    cgroup = Cgroup()
    first = estimation.estimate(NO_ESTIMATE, cgroup.reading())
    assert first.blind(cgroup.at)
    assert estimation.estimate(first, None).blind(cgroup.at)

    known = estimation.estimate(first, cgroup.second(0.2))
    assert not known.blind(cgroup.at)
    assert not known.blind(cgroup.at + 30 * SECOND)
    assert known.blind(cgroup.at + 30 * SECOND + 1)


seconds = st.tuples(
    st.floats(0, 8), st.floats(0, 64), st.sampled_from([0.1, 0.25, 0.5, 1, 1, 1, 2, 5]), st.booleans()
)


@given(st.lists(seconds, max_size=30), st.sampled_from([None, 0.1, 1.0, 4.0]))
def test_growth_from_throttling_is_at_most_a_doubling_a_second(history, limit):
    """After t seconds: at most the usage, or 2^t × the larger of the last estimate and the usage."""
    cgroup = Cgroup(limit)
    known = learned(cgroup, 0.5)
    for used, throttled, length, read in history:
        sample = cgroup.second(used, throttled=throttled, length=length)
        after = estimation.estimate(known, sample if read else None)
        if read and known.sample is not None and not after.doubt:
            gap = (sample.at - known.sample.at) / SECOND
            really = (sample.usage - known.sample.usage) / gap
            most = max(known.demand, really, MICROS) * 2**gap
            assert after.demand <= max(most, really) + 1
            assert after.demand >= int(really) - 1
        known = after
