"""A key is held back until its write is observed, but not forever."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from croupier.kube.cache import expectations
from croupier.kube.cache.expectations import Expectations, WrittenVersion


def version(number: str, uid: str = "uid-1", kind: str = "configmaps") -> WrittenVersion:
    return WrittenVersion(kind, uid, number)


def waiting(*written: WrittenVersion, at: float = 0.0) -> Expectations[str]:
    expected: Expectations[str] = Expectations(timeout=10)
    for version_ in written:
        expected.wrote("key", version_, at)
    return expected


def test_a_key_without_writes_is_not_held_back():
    assert waiting().holds("key", 0) is None


MEETS = {
    "its own version": (version("7"), ["key"]),
    "an older version that was still under way": (version("5"), []),
    "a version of another object": (version("7", uid="uid-2"), []),
    "the same version number of another kind": (version("7", kind="pods"), []),
    "its end": (version("7").gone, ["key"]),
}


@pytest.mark.parametrize(("seen", "freed"), MEETS.values(), ids=MEETS)
def test_what_meets_an_expectation(seen, freed):
    expected = waiting(version("7"))

    assert expected.saw(seen) == freed
    assert (expected.holds("key", 1) is None) == bool(freed)


def test_the_watch_event_may_precede_the_response():
    expected = waiting()
    expected.saw(version("7"))
    expected.saw(version("8"))
    expected.wrote("key", version("7"), 0)

    assert expected.holds("key", 0) is None


def test_an_object_deleted_before_the_response_is_not_expected():
    expected = waiting()
    expected.saw(version("9").gone)
    expected.wrote("key", version("7"), 0)

    assert expected.holds("key", 0) is None


def test_every_write_must_be_observed():
    expected = waiting(version("7"), version("8"), version("3", uid="uid-2"))

    assert expected.saw(version("7")) == []
    assert expected.saw(version("3", uid="uid-2")) == []
    assert expected.saw(version("8")) == ["key"]


LISTS = {
    "a list that began after the write": (6.0, ["key"]),
    "a list that was already under way": (4.0, []),
}


@pytest.mark.parametrize(("began", "freed"), LISTS.values(), ids=LISTS)
def test_a_list_contains_earlier_writes(began, freed):
    assert waiting(version("7"), at=5.0).relisted("configmaps", began) == freed


def test_a_list_of_another_kind_meets_no_expectation():
    assert waiting(version("7")).relisted("pods", 100.0) == []


def test_a_missed_expectation_is_dropped_and_counted():
    expected = waiting(version("7"), at=5.0)

    assert expected.holds("key", 6.0) == 9.0
    assert expected.missed == 0
    assert expected.holds("key", 15.0) is None
    assert expected.missed == 1
    assert expected.held == 0


def test_a_deletion_is_met_only_by_the_deleted_event():
    expected = waiting(version("7").gone)

    assert expected.saw(version("8")) == []
    assert expected.saw(version("9").gone) == ["key"]


def test_memory_of_observed_versions_is_bounded(monkeypatch):
    monkeypatch.setattr(expectations, "MAX_RECENT", 3)
    expected = waiting()
    for number in range(100):
        expected.saw(version(str(number)))
    expected.wrote("key", version("1"), 0)

    assert expected.holds("key", 0) is not None, "forgotten: the deadline will free it"


UIDS = st.sampled_from(["x", "y"])
KEYS = st.sampled_from(["a", "b", "c"])


class Writes(RuleBasedStateMachine):
    """Compared with a model of the cache: a key is free exactly if the cache contains all its writes."""

    @initialize()
    def start(self) -> None:
        self.expected: Expectations[str] = Expectations(timeout=1e9)
        self.log: list[tuple[str, str]] = []
        self.shown = 0
        self.mine: dict[str, set[tuple[str, str]]] = {}

    @rule(uid=UIDS)
    def someone_else_writes(self, uid: str) -> None:
        self.log.append((uid, str(len(self.log))))

    @rule(key=KEYS, uid=UIDS, watch_first=st.booleans())
    def write(self, key: str, uid: str, watch_first: bool) -> None:
        self.log.append((uid, str(len(self.log))))
        written = self.log[-1]
        if watch_first:
            self.watch(len(self.log))
        self.expected.wrote(key, WrittenVersion("pods", *written), 0.0)
        self.mine.setdefault(key, set()).add(written)

    @rule(events=st.integers(1, 3))
    def watch(self, events: int) -> None:
        for uid, number in self.log[self.shown : self.shown + events]:
            self.shown += 1
            before = {key for key in self.mine if self.unseen(key, self.shown - 1)}
            freed = self.expected.saw(WrittenVersion("pods", uid, number))
            assert set(freed) == {key for key in before if not self.unseen(key, self.shown)}

    @rule(key=KEYS)
    def ask(self, key: str) -> None:
        assert (self.expected.holds(key, 1.0) is not None) == bool(self.unseen(key, self.shown))

    def unseen(self, key: str, shown: int) -> set[tuple[str, str]]:
        return self.mine.get(key, set()) - set(self.log[:shown])


TestWrites = Writes.TestCase
