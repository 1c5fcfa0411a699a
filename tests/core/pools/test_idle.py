"""What a pool does about idle cards: once, and without touching what users did."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.pools import idle
from croupier.core.pools.idle import IdleCard, IdleDecision, IdlePolicy

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SINCE, LATER = "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"
NOTIFY, DRAIN = IdlePolicy(2 * HOUR), IdlePolicy(2 * HOUR, "Drain")
CARD = IdleCard("card-0", "team-a")
IDLE = replace(CARD, since=NOON)
OURS = f"idle since {SINCE} (spec.idle of pool team-a)"
DRAINED = replace(IDLE, mark=f"Drain {SINCE}", drain=OURS)
NOTICE = f"no process of its holders has used card card-0 since {SINCE}"
FULL = f"{NOTICE}; it gets no new pods until it is used again"
DONE = IdleDecision()

DECISIONS = {
    "in use": (CARD, DRAIN, 5, DONE),
    "no policy": (IDLE, None, 5, DONE),
    "not yet": (IDLE, DRAIN, 1.5, IdleDecision(again=0.5 * HOUR)),
    "notified": (IDLE, NOTIFY, 2, IdleDecision(f"Notify {SINCE}", None, NOTICE)),
    "notified once": (replace(IDLE, mark=f"Notify {SINCE}"), NOTIFY, 5, DONE),
    "drained": (IDLE, DRAIN, 2, IdleDecision(f"Drain {SINCE}", OURS, FULL)),
    "drained once": (DRAINED, DRAIN, 5, DONE),
    "in use again": (replace(DRAINED, since=None), DRAIN, 5, IdleDecision("", "")),
    "the policy goes away": (DRAINED, None, 5, IdleDecision("", "")),
    "the card leaves the pool": (replace(DRAINED, pool=""), None, 5, IdleDecision("", "")),
    "a longer time": (DRAINED, IdlePolicy(9 * HOUR, "Drain"), 5, IdleDecision("", "", again=4 * HOUR)),
    "Notify instead of Drain": (DRAINED, NOTIFY, 5, IdleDecision(f"Notify {SINCE}", "", NOTICE)),
    "Drain instead of Notify": (
        replace(IDLE, mark=f"Notify {SINCE}"),
        DRAIN,
        5,
        IdleDecision(f"Drain {SINCE}", OURS, FULL),
    ),
    "a user's drain stays": (
        replace(IDLE, drain="repair"),
        DRAIN,
        5,
        IdleDecision(f"Drain {SINCE}", None, NOTICE),
    ),
    "a user's drain stays when it is used": (
        replace(DRAINED, since=None, drain="repair"),
        DRAIN,
        5,
        IdleDecision("", None),
    ),
    "a drain that a user removed is not set again": (replace(DRAINED, drain=None), DRAIN, 5, DONE),
    "another idle time": (
        replace(DRAINED, since=NOON + HOUR),
        DRAIN,
        5,
        IdleDecision(
            f"Drain {LATER}",
            f"idle since {LATER} (spec.idle of pool team-a)",
            FULL.replace(SINCE, LATER),
        ),
    ),
}


@pytest.mark.parametrize(("card", "policy", "hours", "expected"), DECISIONS.values(), ids=DECISIONS)
def test_decisions(card, policy, hours, expected):
    assert idle.decide(card, policy, NOON + hours * HOUR) == expected


POLICIES = st.none() | st.builds(
    IdlePolicy, st.integers(1, 5).map(lambda hours: hours * HOUR), st.sampled_from(["Notify", "Drain"])
)
TIMES = st.none() | st.integers(0, 10).map(lambda hours: NOON + hours * HOUR)
STEPS = st.lists(
    st.tuples(POLICIES, TIMES, st.sampled_from(["", "drain", "undrain"])), min_size=1, max_size=12
)


def written(card: IdleCard, decision: IdleDecision) -> IdleCard:
    """The card after the decision was carried out."""
    mark = card.mark if decision.mark is None else decision.mark
    drain = card.drain if decision.drain is None else decision.drain or None
    return replace(card, mark=mark, drain=drain)


@given(STEPS)
def test_users_keep_their_drains_and_ours_end(steps):
    """Users drain and undrain at any time; the policy and the idle time change at any time."""
    card, theirs, now = CARD, False, NOON
    for policy, since, user in steps:
        now += HOUR
        if user:
            card, theirs = replace(card, drain="by hand" if user == "drain" else None), user == "drain"
        card = replace(card, since=min(since, now) if since is not None else None)
        decision = idle.decide(card, policy, now)
        card = written(card, decision)

        assert not theirs or card.drain == "by hand"
        assert idle.decide(card, policy, now) == replace(decision, mark=None, drain=None, notice="")
        if policy is None or card.since is None:
            assert card.mark == ""
            assert theirs or card.drain is None
        if policy is not None and policy.action == "Notify":
            assert theirs or card.drain is None


@given(POLICIES, TIMES, st.integers(0, 10))
def test_nothing_happens_early(policy, since, hours):
    now = NOON + hours * HOUR
    decision = idle.decide(replace(CARD, since=since), policy, now)

    due = policy is not None and since is not None and now - since >= policy.after
    assert bool(decision.notice) == due
    assert decision.again is None or (not due and decision.again > timedelta())
