"""A token bucket never grants more than burst + rate x time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.kube.controller.rate_limit import RateLimit, TokenBucket, TokenBuckets


@given(
    st.lists(st.floats(0, 10, allow_nan=False), max_size=60).map(sorted),
    st.sampled_from([RateLimit(1, 1), RateLimit(0.5, 3), RateLimit(10, 5)]),
)
def test_no_more_than_burst_plus_rate(moments, rate):
    bucket = TokenBucket(rate)
    granted = [moment for moment in moments if bucket.allows(moment)]

    for index, first in enumerate(granted):
        for last in granted[index:]:
            within = sum(1 for moment in granted if first <= moment <= last)
            assert within <= rate.burst + (last - first) * rate.per_second + 1e-6


def test_tokens_on_credit_are_available_in_order():
    bucket = TokenBucket(RateLimit(per_second=2, burst=2))
    assert [bucket.delay(0) for _ in range(5)] == [0, 0, 0.5, 1.0, 1.5]
    assert bucket.delay(2.0) == 0


def test_an_unused_bucket_refills():
    bucket = TokenBucket(RateLimit(per_second=1, burst=2))
    assert bucket.allows(0)
    assert not bucket.full(0.5)
    assert bucket.full(1.0)


@pytest.mark.parametrize(("per_second", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_rate_limit_of_zero_is_refused(per_second, burst):
    with pytest.raises(ValueError, match="more than 0 a second"):
        RateLimit(per_second, burst)


def test_each_key_has_its_bucket_and_the_least_recently_used_is_discarded():
    buckets: TokenBuckets[str] = TokenBuckets(most=2)
    rate = RateLimit(per_second=1, burst=1)
    assert buckets.of("a", rate).allows(0)
    assert buckets.of("b", rate).allows(0)
    assert not buckets.of("a", rate).allows(0)

    assert buckets.of("c", rate).allows(0)
    assert len(buckets) == 2
    assert not buckets.of("a", rate).allows(0), "b was used before a"
    assert buckets.of("b", rate).allows(0)
