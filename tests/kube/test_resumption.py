"""The next step of the list-and-watch loop, for all known failure cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.kube import resumption
from croupier.kube.backoff import Backoff
from croupier.kube.errors import Gone, NotFound, ServerError, TooManyRequests, Unreachable
from croupier.kube.resumption import Broke, Ended, Listed, Position, Progress, Rules

GONE = Broke(Gone(410))
CUT = Broke(Unreachable("cut"))

STEPS = {
    "a list says where to watch from": (Position(), Listed("5"), Position("5")),
    "an event moves on": (Position("5", failures=2), Progress("6"), Position("6")),
    "progress without a version resets failures": (
        Position("5", failures=2),
        Progress(""),
        Position("5"),
    ),
    "a kind that is gone is listed again": (Position("5"), Broke(NotFound(404)), Position(None, failures=1)),
    "a watch that ends in good order goes on": (Position("5"), Ended(alive=True), Position("5")),
    "an empty watch counts as a failure": (Position("5"), Ended(alive=False), Position("5", failures=1)),
    "a cut watch resumes where it was": (Position("5"), CUT, Position("5", failures=1)),
    "too old means list again": (Position("5"), GONE, Position(None, failures=1)),
    "a list alone is no sign that watching works": (
        Position(None, 3),
        Listed("9"),
        Position("9", failures=3),
    ),
}


@pytest.mark.parametrize(("before", "what", "expected"), STEPS.values(), ids=STEPS)
def test_next(before, what, expected):
    assert resumption.after(before, what) == expected


@pytest.mark.parametrize("what", [CUT, GONE, Ended(alive=False), Broke(ServerError(500))], ids=repr)
def test_delays_grow_to_a_limit(what):
    rules = Rules(backoff=Backoff(first=1, factor=2, most=8, jitter=0))
    position, waits = Position("5"), []
    for _ in range(6):
        position = resumption.after(position, what)
        waits.append(resumption.wait(position, what, rules, 0.5))

    assert waits == [1, 2, 4, 8, 8, 8]


def test_no_delay_without_failures():
    assert resumption.wait(Position("5"), Ended(alive=True), Rules(), 0.9) == 0
    assert resumption.wait(Position("5", failures=3), Listed("5"), Rules(), 0.9) == 0


def test_a_retry_after_extends_the_delay():
    busy = Broke(TooManyRequests(429, retry_after=40))

    assert resumption.wait(Position("5", failures=1), busy, Rules(), 0.0) == 40


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_jitter_spreads_delays_within_the_limit(failures, chance):
    backoff = Backoff(first=0.5, most=30)

    assert 0 < backoff.delay(failures, chance) <= 30
    assert backoff.delay(failures, 0.0) < backoff.delay(failures, 0.9)


@given(st.floats(0, 1, exclude_max=True))
def test_watch_durations_have_jitter(chance):
    assert 300 <= Rules().seconds(chance) <= 600
