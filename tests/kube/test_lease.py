"""Two rules decide everything: wait as long as the holder said, and stop before the others may start."""

from datetime import UTC, datetime

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from croupier.kube import lease
from croupier.kube.lease import Acquire, Lost, Record, Renew, Sighting, Terms, Wait
from croupier.kube.resource import Raw

TERMS = Terms(duration=15, renew_deadline=10, every=2)
NOON = datetime(2026, 11, 15, 12, 0, 0, 250, tzinfo=UTC)


def seen(holder="", at=100.0, seconds: float | None = 15) -> Sighting:
    return Sighting(Record(holder=holder, seconds=seconds, stamp="x"), at)


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
    "taken from us": (seen("other"), 101, 110, Lost("the lease is held by other now")),
    "emptied by somebody while we lead": (seen(""), 101, 110, Lost("the lease is held by nobody now")),
    "deleted while we lead": (None, 101, 110, Acquire()),
}


@pytest.mark.parametrize(("sighting", "now", "leads_until", "decision"), DECISIONS.values(), ids=DECISIONS)
def test_decisions(sighting, now, leads_until, decision):
    assert lease.decide(sighting, "me", now=now, terms=TERMS, leads_until=leads_until) == decision


def test_time_starts_again_only_when_the_record_changes():
    first = lease.claimed(lease.new("l", "ns"), "other", now=NOON, terms=TERMS)
    once = lease.sight(None, first, 100)
    relabelled = {**first, "metadata": {"labels": {"a": "b"}, "resourceVersion": "9"}}
    renewed = lease.claimed(first, "other", now=NOON.replace(second=2), terms=TERMS)

    assert lease.sight(once, relabelled, 105).at == 100
    assert lease.sight(once, renewed, 105).at == 105


def test_a_life_of_a_lease_on_the_wire():
    fresh = lease.claimed(lease.new("l", "ns"), "a", now=NOON, terms=TERMS)
    assert fresh["spec"] == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-15T12:00:00.000250Z",
        "renewTime": "2026-11-15T12:00:00.000250Z",
        "leaseTransitions": 0,
    }
    renewed = lease.claimed(fresh, "a", now=NOON.replace(second=2), terms=TERMS)
    assert renewed["spec"]["acquireTime"] == fresh["spec"]["acquireTime"]
    assert renewed["spec"]["renewTime"] == "2026-11-15T12:00:02.000250Z"
    assert renewed["spec"]["leaseTransitions"] == 0

    given_back = lease.released(renewed, now=NOON.replace(second=3))
    assert lease.read(given_back).holder == ""
    taken = lease.claimed(given_back, "b", now=NOON.replace(second=4), terms=TERMS)
    assert (lease.read(taken).holder, lease.read(taken).transitions) == ("b", 1)


def test_what_others_wrote_into_the_lease_stays():
    theirs: Raw = {
        "metadata": {"name": "l", "labels": {"team": "x"}},
        "spec": {"strategy": "OldestEmulationVersion"},
    }
    mine = lease.claimed(theirs, "a", now=NOON, terms=TERMS)

    assert mine["metadata"]["labels"] == {"team": "x"}
    assert mine["spec"]["strategy"] == "OldestEmulationVersion"


@pytest.mark.parametrize(("every", "deadline", "duration"), [(0, 10, 15), (10, 10, 15), (2, 15, 15)])
def test_terms_that_could_make_two_leaders_are_refused(every, deadline, duration):
    with pytest.raises(ValueError, match="every < renew_deadline < duration"):
        Terms(duration=duration, renew_deadline=deadline, every=every)


def test_looks_are_spread():
    assert TERMS.pause(0.0) == pytest.approx(1.8)
    assert TERMS.pause(1.0) == pytest.approx(2.2)


class Candidate:
    """One replica with a clock of its own, whose writes may reach the API server late."""

    def __init__(self, name: str, offset: float) -> None:
        self.name = name
        self.offset = offset
        self.seen: Sighting | None = None
        self.lease: tuple[int, Raw] | None = None
        self.until: float | None = None
        self.sending: tuple[float, int, Raw] | None = None


CANDIDATES = st.sampled_from(["a", "b", "c"])


class Election(RuleBasedStateMachine):
    """Real time runs in `now`; no candidate knows it. Requests take any time; replicas stop and go on."""

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
        one = self.all[name]
        one.lease = (self.version, self.stored) if self.stored is not None else None
        one.seen = (
            lease.sight(one.seen, self.stored, self.now + one.offset) if self.stored is not None else None
        )

    @rule(name=CANDIDATES)
    def send(self, name: str) -> None:
        """Decide by what was seen, and put a claim on its way."""
        one = self.all[name]
        mine = self.now + one.offset
        match lease.decide(one.seen, name, now=mine, terms=TERMS, leads_until=one.until):
            case Acquire() | Renew():
                version, known = one.lease or (0, lease.new("l", "ns"))
                stamp = datetime.fromtimestamp(1e9 + self.now, UTC)
                one.sending = (mine, version, lease.claimed(known, name, now=stamp, terms=TERMS))
            case Lost():
                one.until = None

    @rule(name=CANDIDATES, answer_lost=st.booleans())
    def arrive(self, name: str, answer_lost: bool) -> None:
        """The API server compares and swaps; the answer may be lost."""
        one = self.all[name]
        if one.sending is None:
            return
        (sent, version, body), one.sending = one.sending, None
        if version != (self.version if self.stored is not None else 0):
            return
        self.version += 1
        self.stored = body
        if not answer_lost:
            one.until = sent + TERMS.renew_deadline
            one.lease = (self.version, body)
            one.seen = lease.sight(one.seen, body, sent)

    @rule(name=CANDIDATES)
    def a_whole_round(self, name: str) -> None:
        self.look(name)
        self.send(name)
        self.arrive(name, False)

    @rule(name=CANDIDATES)
    def hand_back(self, name: str) -> None:
        one = self.all[name]
        if one.until is None or self.stored is None or lease.read(self.stored).holder != name:
            return
        one.until = None
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
