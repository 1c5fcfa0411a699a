"""The two rules of leader election: wait for the full lease duration, and stop before others may start."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from croupier.kube.client.resource import Raw
from croupier.kube.controller import lease
from croupier.kube.controller.lease import (
    Acquire,
    LeaseRecord,
    LeaseTimings,
    Lost,
    ObservedLease,
    Renew,
    Wait,
)

TERMS = LeaseTimings(duration=15, renew_deadline=10, every=2)
NOON = datetime(2026, 11, 15, 12, 0, 0, 250, tzinfo=UTC)


def seen(holder="", at=100.0, seconds: float | None = 15) -> ObservedLease:
    return ObservedLease(LeaseRecord(holder=holder, seconds=seconds, stamp="x"), at)


DECISIONS = {
    "no lease at all": (None, 100, None, Acquire()),
    "handed back": (seen(""), 100, None, Acquire()),
    "held by another": (seen("other"), 101, None, Wait(115, "other")),
    "held by another, a moment before the end": (seen("other"), 114.9, None, Wait(115, "other")),
    "run out": (seen("other"), 115, None, Acquire()),
    "run out by the holder's own shorter word": (seen("other", seconds=3), 103, None, Acquire()),
    "says nothing about its length": (seen("other", seconds=None), 114, None, Wait(115, "other")),
    "ours from a lost answer": (seen("me"), 101, None, Renew()),
    "ours": (seen("me"), 101, 110, Renew()),
    "our deadline is over": (seen("me"), 110, 110, Lost("the lease was not renewed within 10 s")),
    "taken by another": (seen("other"), 101, 110, Lost("the lease is now held by other")),
    "released by another client while leading": (seen(""), 101, 110, Lost("the lease was released")),
    "deleted while we lead": (None, 101, 110, Acquire()),
}


@pytest.mark.parametrize(("sighting", "now", "leads_until", "decision"), DECISIONS.values(), ids=DECISIONS)
def test_decisions(sighting, now, leads_until, decision):
    assert lease.decide(sighting, "me", now=now, terms=TERMS, leads_until=leads_until) == decision


def test_the_observation_time_changes_only_with_the_record():
    first = lease.acquired(lease.new("l", "ns"), "other", now=NOON, terms=TERMS)
    once = lease.observe(None, first, 100)
    relabelled = {**first, "metadata": {"labels": {"a": "b"}, "resourceVersion": "9"}}
    renewed = lease.acquired(first, "other", now=NOON.replace(second=2), terms=TERMS)

    assert lease.observe(once, relabelled, 105).at == 100
    assert lease.observe(once, renewed, 105).at == 105


def test_the_lease_object_through_its_life_cycle():
    fresh = lease.acquired(lease.new("l", "ns"), "a", now=NOON, terms=TERMS)
    assert fresh["spec"] == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-15T12:00:00.000250Z",
        "renewTime": "2026-11-15T12:00:00.000250Z",
        "leaseTransitions": 0,
    }
    renewed = lease.acquired(fresh, "a", now=NOON.replace(second=2), terms=TERMS)
    assert renewed["spec"]["acquireTime"] == fresh["spec"]["acquireTime"]
    assert renewed["spec"]["renewTime"] == "2026-11-15T12:00:02.000250Z"
    assert renewed["spec"]["leaseTransitions"] == 0

    given_back = lease.released(renewed, now=NOON.replace(second=3))
    assert lease.read(given_back).holder == ""
    taken = lease.acquired(given_back, "b", now=NOON.replace(second=4), terms=TERMS)
    assert (lease.read(taken).holder, lease.read(taken).transitions) == ("b", 1)


def test_unknown_fields_of_the_lease_stay():
    theirs: Raw = {
        "metadata": {"name": "l", "labels": {"team": "x"}},
        "spec": {"strategy": "OldestEmulationVersion"},
    }
    mine = lease.acquired(theirs, "a", now=NOON, terms=TERMS)

    assert mine["metadata"]["labels"] == {"team": "x"}
    assert mine["spec"]["strategy"] == "OldestEmulationVersion"


@pytest.mark.parametrize(("every", "deadline", "duration"), [(0, 10, 15), (10, 10, 15), (2, 15, 15)])
def test_timings_that_allow_two_leaders_are_refused(every, deadline, duration):
    with pytest.raises(ValueError, match="every < renew_deadline < duration"):
        LeaseTimings(duration=duration, renew_deadline=deadline, every=every)


def test_attempts_have_jitter():
    assert TERMS.pause(0.0) == pytest.approx(1.8)
    assert TERMS.pause(1.0) == pytest.approx(2.2)


SLOW = st.floats(0, TERMS.attempt_timeout)


@given(st.lists(st.tuples(SLOW, st.floats(0, 1)), min_size=2))
def test_renewals_that_end_within_their_timeout_always_keep_the_lease(renewals):
    """However slow each of them is: the deadline of one is later than the response to the next."""
    now, until = 0.0, TERMS.renew_deadline
    for took, chance in renewals:
        sent, now = now, now + took
        assert now <= until + 1e-6
        until = sent + TERMS.renew_deadline
        now += TERMS.renewal_pause(took, chance)


@given(st.floats(0, 100), st.floats(0, 1))
def test_the_interval_counts_from_the_start_of_a_renewal(took, chance):
    pause = TERMS.renewal_pause(took, chance)

    assert pause >= 0
    assert took + pause >= TERMS.pause(0.0) - 1e-9
    assert pause <= TERMS.pause(1.0)


class Candidate:
    """One replica with its own clock, whose writes may reach the API server late."""

    def __init__(self, name: str, offset: float) -> None:
        self.name = name
        self.offset = offset
        self.seen: ObservedLease | None = None
        self.lease: tuple[int, Raw] | None = None
        self.until: float | None = None
        self.sending: tuple[float, int, Raw] | None = None


CANDIDATES = st.sampled_from(["a", "b", "c"])


class Election(RuleBasedStateMachine):
    """`now` is the real time, unknown to the candidates. Requests are delayed; replicas freeze and resume."""

    @initialize(offsets=st.lists(st.floats(-1000, 1000), min_size=3, max_size=3))
    def start(self, offsets: list[float]) -> None:
        self.now = 0.0
        self.version = 0
        self.stored: Raw | None = None
        self.all = {name: Candidate(name, offset) for name, offset in zip("abc", offsets, strict=True)}

    @rule(seconds=st.sampled_from([0.1, 2.0, 4.0, 5.0, 8.0, 9.9, 15.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=CANDIDATES)
    def look(self, name: str) -> None:
        candidate = self.all[name]
        candidate.lease = (self.version, self.stored) if self.stored is not None else None
        candidate.seen = (
            lease.observe(candidate.seen, self.stored, self.now + candidate.offset)
            if self.stored is not None
            else None
        )

    @rule(name=CANDIDATES)
    def send(self, name: str) -> None:
        """Decide by the last observation, and send a write."""
        candidate = self.all[name]
        mine = self.now + candidate.offset
        match lease.decide(candidate.seen, name, now=mine, terms=TERMS, leads_until=candidate.until):
            case Acquire() | Renew():
                version, known = candidate.lease or (0, lease.new("l", "ns"))
                stamp = datetime.fromtimestamp(1e9 + self.now, UTC)
                candidate.sending = (mine, version, lease.acquired(known, name, now=stamp, terms=TERMS))
            case Lost():
                candidate.until = None

    @rule(name=CANDIDATES, answer_lost=st.booleans())
    def arrive(self, name: str, answer_lost: bool) -> None:
        """The API server compares and swaps; the response may be lost."""
        candidate = self.all[name]
        if candidate.sending is None:
            return
        (sent, version, body), candidate.sending = candidate.sending, None
        if version != (self.version if self.stored is not None else 0):
            return
        self.version += 1
        self.stored = body
        if not answer_lost:
            candidate.until = sent + TERMS.renew_deadline
            candidate.lease = (self.version, body)
            candidate.seen = lease.observe(candidate.seen, body, sent)

    @rule(name=CANDIDATES)
    def a_whole_round(self, name: str) -> None:
        self.look(name)
        self.send(name)
        self.arrive(name, False)

    @rule(name=CANDIDATES)
    def hand_back(self, name: str) -> None:
        candidate = self.all[name]
        if candidate.until is None or self.stored is None or lease.read(self.stored).holder != name:
            return
        candidate.until = None
        self.version += 1
        self.stored = lease.released(self.stored, now=NOON)

    @invariant()
    def at_most_one_leads(self) -> None:
        if not hasattr(self, "all"):
            return
        leading = [c.name for c in self.all.values() if c.until is not None and self.now + c.offset < c.until]
        assert len(leading) <= 1


TestElection = Election.TestCase
TestElection.settings = settings(max_examples=200, deadline=None)
