"""The next step of the list-and-watch loop, for all known failure cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.kube.cache import watch_state
from croupier.kube.cache.watch_state import (
    Listed,
    ReflectorOptions,
    WatchClosed,
    WatchFailed,
    WatchPosition,
    WatchProgress,
)
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.errors import Gone, NotFound, ServerError, TooManyRequests, Unreachable

GONE = WatchFailed(Gone(410))
CUT = WatchFailed(Unreachable("cut"))

STEPS = {
    "a list says where to watch from": (WatchPosition(), Listed("5"), WatchPosition("5")),
    "an event moves on": (WatchPosition("5", failures=2), WatchProgress("6"), WatchPosition("6")),
    "progress without a version resets failures": (
        WatchPosition("5", failures=2),
        WatchProgress(""),
        WatchPosition("5"),
    ),
    "a kind that is gone is listed again": (
        WatchPosition("5"),
        WatchFailed(NotFound(404)),
        WatchPosition(None, failures=1),
    ),
    "a watch that ends in good order goes on": (
        WatchPosition("5"),
        WatchClosed(alive=True),
        WatchPosition("5"),
    ),
    "an empty watch counts as a failure": (
        WatchPosition("5"),
        WatchClosed(alive=False),
        WatchPosition("5", failures=1),
    ),
    "a cut watch resumes where it was": (WatchPosition("5"), CUT, WatchPosition("5", failures=1)),
    "too old means list again": (WatchPosition("5"), GONE, WatchPosition(None, failures=1)),
    "a list alone is no sign that watching works": (
        WatchPosition(None, 3),
        Listed("9"),
        WatchPosition("9", failures=3),
    ),
}


@pytest.mark.parametrize(("before", "what", "expected"), STEPS.values(), ids=STEPS)
def test_next(before, what, expected):
    assert watch_state.after(before, what) == expected


@pytest.mark.parametrize(
    "what", [CUT, GONE, WatchClosed(alive=False), WatchFailed(ServerError(500))], ids=repr
)
def test_delays_grow_to_a_limit(what):
    rules = ReflectorOptions(backoff=Backoff(first=1, factor=2, most=8, jitter=0))
    position, waits = WatchPosition("5"), []
    for _ in range(6):
        position = watch_state.after(position, what)
        waits.append(watch_state.delay(position, what, rules, 0.5))

    assert waits == [1, 2, 4, 8, 8, 8]


def test_no_delay_without_failures():
    assert watch_state.delay(WatchPosition("5"), WatchClosed(alive=True), ReflectorOptions(), 0.9) == 0
    assert watch_state.delay(WatchPosition("5", failures=3), Listed("5"), ReflectorOptions(), 0.9) == 0


def test_a_retry_after_extends_the_delay():
    busy = WatchFailed(TooManyRequests(429, retry_after=40))

    assert watch_state.delay(WatchPosition("5", failures=1), busy, ReflectorOptions(), 0.0) == 40


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_jitter_spreads_delays_within_the_limit(failures, chance):
    backoff = Backoff(first=0.5, most=30)

    assert 0 < backoff.delay(failures, chance) <= 30
    assert backoff.delay(failures, 0.0) < backoff.delay(failures, 0.9)


@given(st.floats(0, 1, exclude_max=True))
def test_watch_durations_have_jitter(chance):
    assert 300 <= ReflectorOptions().seconds(chance) <= 600
