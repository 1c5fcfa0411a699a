"""An agent is silent after the timeout; one recorded as silent stays so until its next heartbeat."""

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.model import agent_liveness
from croupier.core.model.agent_liveness import MARKET_AGENT_TIMEOUT, LastHeartbeat

TIMEOUT = 40.0


def listened(*beats: tuple[float, str], was_silent: bool = False) -> LastHeartbeat:
    heard = None
    for now, sign in beats:
        heard = agent_liveness.observe(heard, sign, now, was_silent=was_silent)
    assert heard is not None
    return heard


def test_an_agent_is_silent_after_the_timeout():
    heard = listened((0, "a"), (10, "b"), (20, "b"), (49, "b"))

    assert not heard.is_silent(50, TIMEOUT)
    assert heard.is_silent(50.1, TIMEOUT)
    assert heard.left(30, TIMEOUT) == 20


def test_a_market_agent_has_stopped_after_two_minutes():
    assert not listened((0, "a")).is_silent(2 * 60, MARKET_AGENT_TIMEOUT)
    assert listened((0, "a")).is_silent(2 * 60 + 1e-6, MARKET_AGENT_TIMEOUT)


def test_a_new_observer_grants_the_full_timeout():
    assert not listened((100, "a")).is_silent(139, TIMEOUT)


def test_a_recorded_silent_agent_stays_silent_until_a_heartbeat():
    quiet = listened((0, "a"), (1, "a"), was_silent=True)

    assert quiet.is_silent(1, TIMEOUT)
    assert not agent_liveness.observe(quiet, "b", 2, was_silent=True).is_silent(2, TIMEOUT)


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), min_size=1), st.booleans())
def test_an_agent_with_regular_heartbeats_is_never_silent(steps, was_silent):
    now, sign, heard, changed = 0.0, 0, agent_liveness.observe(None, "0", 0.0, was_silent=was_silent), False
    for gap, beats in steps:
        now += gap
        sign += beats
        changed |= beats
        heard = agent_liveness.observe(heard, str(sign), now, was_silent=was_silent)
        if beats:
            assert not heard.is_silent(now, TIMEOUT)
    if was_silent and not changed:
        assert heard.is_silent(now, TIMEOUT)
