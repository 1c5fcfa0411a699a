"""The budget of resizes: when a limit may change, how far, and the message until then."""

from dataclasses import replace

import pytest

from croupier.core.market import churn
from croupier.core.market.churn import Postponed, ResizeHistory
from croupier.core.market.policy import ChurnPolicy, ResizeRate
from croupier.core.market.units import MINUTE, SECOND

NOW = 1000 * SECOND
POLICY = ChurnPolicy(pod=ResizeRate(burst=10, every=6 * MINUTE))
CALM = ResizeHistory(started=NOW - 60 * SECOND)


def full_in(tokens: int) -> int:
    """When a bucket with so many tokens now is full again."""
    return NOW + (POLICY.pod.burst - tokens) * POLICY.pod.every


STEPS = {
    "a small raise": (100, 130, 130),
    "at most double": (100, 300, 200),
    "a small decrease": (100, 60, 60),
    "at least half": (100, 10, 50),
    "half is rounded up": (101, 10, 51),
    "no change": (100, 100, 100),
}


@pytest.mark.parametrize(("current", "target", "expected"), STEPS.values(), ids=STEPS)
def test_the_length_of_a_step(current, target, expected):
    assert churn.step(current, target) == expected


WORTHWHILE = {
    "a raise by 30 %": (100, 130, False, True),
    "a smaller raise": (100, 129, False, False),
    "a raise of a throttled pod by 15 %": (100, 115, True, True),
    "a smaller raise of a throttled pod": (100, 114, True, False),
    "a slightly smaller raise of a large limit": (10_000, 12_999, False, False),
    "a slightly smaller decrease of a large limit": (10_000, 6_001, False, False),
    "a decrease by 40 %": (100, 60, False, True),
    "a smaller decrease": (100, 61, False, False),
    "a smaller decrease of a throttled pod": (100, 61, True, False),
}


@pytest.mark.parametrize(("current", "target", "throttled", "expected"), WORTHWHILE.values(), ids=WORTHWHILE)
def test_whether_a_difference_is_worth_a_resize(current, target, throttled, expected):
    assert churn.is_worthwhile(current, target, churn=POLICY, throttled=throttled) == expected


RAISES = {
    "of a pod that never changed": (CALM, None),
    "9 s after a change": (
        replace(CALM, moved=NOW - 9 * SECOND),
        "its limit was changed recently; it may be raised in 1 s",
    ),
    "9.5 s after a change": (
        replace(CALM, moved=NOW - 19 * SECOND // 2),
        "its limit was changed recently; it may be raised in 1 s",
    ),
    "a moment before 10 s have passed since a change": (
        replace(CALM, moved=NOW - 10 * SECOND + 1),
        "its limit was changed recently; it may be raised in 1 s",
    ),
    "10 s after a change": (replace(CALM, moved=NOW - 10 * SECOND), None),
    "right after its start": (ResizeHistory(started=NOW), None),
    "with one token": (replace(CALM, tokens=full_in(1)), None),
    "without tokens": (
        replace(CALM, tokens=full_in(0)),
        "its resize budget is used up; the next resize is possible in 360 s",
    ),
    "a minute before the next token": (
        replace(CALM, tokens=full_in(1) + MINUTE),
        "its resize budget is used up; the next resize is possible in 60 s",
    ),
}


@pytest.mark.parametrize(("history", "reason"), RAISES.values(), ids=RAISES)
def test_when_a_limit_may_be_raised(history, reason):
    expected = None if reason is None else Postponed(reason)

    assert churn.raise_postponed(history, churn=POLICY, now=NOW) == expected


RESERVED = "its remaining resize budget is reserved for raises"
DECREASES = {
    "of a calm pod": (CALM, False, None),
    "59 s after a change": (
        replace(CALM, moved=NOW - 59 * SECOND),
        False,
        "its limit was changed recently; it may be lowered in 1 s",
    ),
    "60 s after a change": (replace(CALM, moved=NOW - 60 * SECOND), False, None),
    "50 s after its start": (
        replace(CALM, started=NOW - 50 * SECOND),
        False,
        "it started recently; its limit may be lowered in 10 s",
    ),
    "a moment before a minute has passed since its start": (
        replace(CALM, started=NOW - 60 * SECOND + 1),
        False,
        "it started recently; its limit may be lowered in 1 s",
    ),
    "a moment before a minute has passed since a change": (
        replace(CALM, moved=NOW - 60 * SECOND + 1),
        False,
        "its limit was changed recently; it may be lowered in 1 s",
    ),
    "a moment before a minute has passed since throttling": (
        replace(CALM, throttled=NOW - 60 * SECOND + 1),
        False,
        "it was throttled recently; its limit may be lowered in 1 s",
    ),
    "20 s after throttling": (
        replace(CALM, throttled=NOW - 20 * SECOND),
        False,
        "it was throttled recently; its limit may be lowered in 40 s",
    ),
    "60 s after throttling": (replace(CALM, throttled=NOW - 60 * SECOND), False, None),
    "20 s after throttling, when others need the CPU": (
        replace(CALM, throttled=NOW - 20 * SECOND),
        True,
        None,
    ),
    "with more than half of the tokens": (replace(CALM, tokens=full_in(6)), False, None),
    "with half of the tokens": (replace(CALM, tokens=full_in(5)), False, RESERVED),
    "with half of the tokens, when others need the CPU": (replace(CALM, tokens=full_in(5)), True, None),
    "with three tokens, when others need the CPU": (replace(CALM, tokens=full_in(3)), True, None),
    "with two tokens, when others need the CPU": (replace(CALM, tokens=full_in(2)), True, RESERVED),
}


@pytest.mark.parametrize(("history", "called", "reason"), DECREASES.values(), ids=DECREASES)
def test_when_a_limit_may_be_lowered(history, called, reason):
    expected = None if reason is None else Postponed(reason)

    assert churn.decrease_postponed(history, called=called, churn=POLICY, now=NOW) == expected


def test_a_bucket_fills_by_one_token_at_a_time():
    rate = ResizeRate(burst=3, every=10)
    full_at = churn.take_token(churn.take_token(0, rate, 100), rate, 100)

    assert full_at == 120
    assert [churn.available_tokens(full_at, rate, now) for now in (100, 109, 110, 119, 120, 999)] == [
        1,
        1,
        2,
        2,
        3,
        3,
    ]


@pytest.mark.parametrize(
    ("before", "after", "words"), [(50, 150, "raised from 500m to 1500m"), (200, 100, "lowered from 2 to 1")]
)
def test_a_change_in_words(before, after, words):
    assert churn.describe_change(before, after) == words
