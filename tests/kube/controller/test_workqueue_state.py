"""The work queue guarantees: no request is lost, no key is processed concurrently, nothing starves."""

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from croupier.kube.client.backoff import Backoff
from croupier.kube.client.identity import Key
from croupier.kube.controller.rate_limit import RateLimit
from croupier.kube.controller.workqueue_state import WorkQueueState

KEYS = st.sampled_from("abcde")
GROUPS = {"a": "one", "b": "one", "c": "one", "d": "two", "e": "three"}
STEADY = Backoff(first=1.0, factor=2.0, most=60.0, jitter=0.0)
PLENTY = RateLimit(per_second=1000, burst=1000)


def backlog(retries=STEADY, rate=PLENTY) -> WorkQueueState[str]:
    return WorkQueueState(retries=retries, retry_rate=rate)


def grouped(rate=PLENTY) -> WorkQueueState[str]:
    return WorkQueueState(retries=STEADY, retry_rate=rate, group=lambda key: GROUPS.get(key, key[0]))


def taken(queue: WorkQueueState[str], now: float) -> str | None:
    handout = queue.take(now)
    return handout.key if handout else None


def all_ready(queue: WorkQueueState[str], now: float) -> list[str]:
    keys = []
    while (key := taken(queue, now)) is not None:
        keys.append(key)
    return keys


def test_a_key_added_twice_is_taken_once():
    queue = backlog()
    assert queue.add("a", 0)
    assert not queue.add("a", 1)

    assert [taken(queue, 2), taken(queue, 2)] == ["a", None]


def test_a_busy_key_that_was_added_again_is_ready_once_after_done():
    queue = backlog()
    queue.add("a", 0)
    queue.take(0)
    queue.add("a", 1)
    queue.add("a", 2)

    assert taken(queue, 3) is None
    queue.done("a", 3)
    assert taken(queue, 3) == "a"
    queue.done("a", 4)
    assert taken(queue, 4) is None


EARLIEST = {
    "the earlier of two delays": ([5.0, 3.0], 3.0),
    "in any order": ([3.0, 5.0], 3.0),
    "an immediate request wins over a later one": ([5.0, 0.0], 0.0),
    "a later request does not delay an immediate one": ([0.0, 5.0], 0.0),
    "a due time in the past is immediate": ([-1.0], 0.0),
}


@pytest.mark.parametrize(("delays", "due"), EARLIEST.values(), ids=EARLIEST)
def test_the_earliest_request_wins(delays, due):
    queue = backlog()
    for delay in delays:
        queue.add_at("a", delay, 0.0)

    if due > 0:
        assert taken(queue, due - 0.01) is None
    assert taken(queue, due) == "a"
    queue.done("a", due)
    assert taken(queue, 100) is None, "one reconcile serves all requests"


def test_a_busy_key_that_comes_due_waits_for_its_worker():
    queue = backlog()
    queue.add("a", 0)
    queue.take(0)
    queue.add_at("a", 5, 1)

    assert taken(queue, 6) is None
    queue.done("a", 7)
    assert taken(queue, 7) == "a"


def test_the_backoff_grows_with_failures_until_forget():
    queue = backlog()
    assert [queue.retry("a", 0, 0.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert queue.failures("a") == 8

    queue.forget("a")
    assert queue.retry("a", 0, 0.0) == 1


def test_jitter_spreads_the_retries_of_keys_that_failed_together():
    queue = backlog(retries=Backoff(first=8.0, jitter=0.25))

    assert queue.retry("a", 0, 0.0) == 6
    assert queue.retry("b", 0, 0.999) == pytest.approx(8, abs=0.01)


def test_all_retries_together_are_bounded():
    queue = backlog(retries=Backoff(first=0.001, jitter=0.0), rate=RateLimit(per_second=10, burst=5))
    for n in range(25):
        queue.retry(f"key-{n}", 0, 0.0)

    assert [len(all_ready(queue, moment)) for moment in (0.01, 1.0, 2.0)] == [5, 10, 10]


def test_the_retries_of_one_group_do_not_delay_those_of_another():
    queue = grouped(rate=RateLimit(per_second=1, burst=1))
    for n in range(1000):
        queue.retry(f"x{n}", 0, 0.0)

    assert queue.retry("x", 0, 0.0) == 1000
    assert queue.retry("y", 0, 0.0) == 1


TURNS = {
    "one key of ten thousand, then the other group": (10_000, ["x0", "y0", "x1", "x2"]),
    "and of one key": (1, ["x0", "y0"]),
}


@pytest.mark.parametrize(("keys", "first"), TURNS.values(), ids=TURNS)
def test_groups_take_turns(keys, first):
    queue = grouped()
    for n in range(keys):
        queue.add(f"x{n}", 0)
    queue.add("y0", 1)

    order = all_ready(queue, 2)
    assert order[:4] == first
    assert len(order) == keys + 1


def test_a_namespace_is_a_group_and_all_cluster_scoped_keys_are_one():
    queue: WorkQueueState[Key | str] = WorkQueueState()
    for name in ("n1", "n2"):
        queue.add(name, 0)
    for key in (Key("a", "1"), Key("a", "2"), Key("b", "1"), Key("", "n3")):
        queue.add(key, 0)

    taken_keys = [item.key for _ in range(6) if (item := queue.take(0)) is not None]
    assert taken_keys == ["n1", Key("a", "1"), Key("b", "1"), "n2", Key("a", "2"), Key("", "n3")]


def test_a_group_that_empties_its_turn_comes_after_the_groups_that_wait():
    queue = grouped()
    queue.add("x0", 0)
    queue.add("y0", 0)
    queue.add("y1", 0)
    assert taken(queue, 0) == "x0"
    queue.add("x1", 0)

    assert all_ready(queue, 0) == ["y0", "x1", "y1"]


def test_close_keeps_ready_keys_and_drops_waiting_keys():
    queue = backlog()
    queue.add("ready", 0)
    queue.add_at("later", 5, 0)
    queue.close()
    assert not queue.add("late", 1)

    assert taken(queue, 10) == "ready"
    assert not queue.drained
    queue.done("ready", 11)
    assert queue.drained
    assert taken(queue, 12) is None


def test_clear_drops_all_keys():
    queue = backlog()
    queue.add("a", 0)
    queue.take(0)
    queue.add("a", 0)
    queue.add("b", 0)
    queue.clear()

    assert taken(queue, 1) is None
    queue.done("a", 1)
    assert queue.drained


def test_the_waiting_time_starts_when_a_key_is_due():
    queue = backlog()
    queue.add_at("a", 5, 0)
    queue.add("b", 6)

    first, second = queue.take(10), queue.take(10)
    assert first is not None
    assert second is not None
    assert {first.key: first.waited, second.key: second.waited} == {"a": 5, "b": 4}


class Work(RuleBasedStateMachine):
    """The queue compared with a simple model of the requests: key -> due time."""

    @initialize()
    def start(self) -> None:
        self.queue = grouped()
        self.now = 0.0
        self.wanted: dict[str, float] = {}
        self.busy: set[str] = set()

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key, self.now)
        self.wanted[key] = min(self.wanted.get(key, self.now), self.now)

    @rule(key=KEYS, delay=st.sampled_from([0.0, 1.0, 2.5, 10.0]))
    def add_later(self, key: str, delay: float) -> None:
        self.queue.add_at(key, self.now + delay, self.now)
        self.wanted[key] = min(self.wanted.get(key, self.now + delay), self.now + delay)

    @rule(key=KEYS)
    def fail(self, key: str) -> None:
        due = self.now + self.queue.retry(key, self.now, 0.0)
        self.wanted[key] = min(self.wanted.get(key, due), due)

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        due = {key for key, at in self.wanted.items() if at <= self.now} - self.busy
        key = taken(self.queue, self.now)
        assert (key in due) if due else key is None
        if key is not None:
            del self.wanted[key]
            self.busy.add(key)

    @precondition(lambda self: self.busy)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.busy)))
        self.queue.done(key, self.now)
        self.busy.remove(key)

    @rule()
    def everyone_gets_a_turn(self) -> None:
        """A key that is added again waits behind the ready keys of its group, and groups take turns."""
        due = {key for key, at in self.wanted.items() if at <= self.now} - self.busy
        sizes = Counter(GROUPS[key] for key in due)
        served = set()
        for _ in range(len(sizes) * max(sizes.values(), default=0)):
            key = taken(self.queue, self.now)
            assert key is not None
            served.add(key)
            del self.wanted[key]
            self.queue.add(key, self.now)
            self.wanted[key] = self.now
            self.queue.done(key, self.now)
        assert served == due

    @rule(key=KEYS)
    def a_key_waits_for_one_key_of_each_other_group(self, key: str) -> None:
        """And for the ready keys of its own group, whatever is added while it waits."""
        ready = {other for other, at in self.wanted.items() if at <= self.now} - self.busy
        if key in self.busy or any(GROUPS[other] == GROUPS[key] for other in ready):
            return
        self.add(key)
        before: list[str] = []
        while (first := taken(self.queue, self.now)) != key:
            assert first is not None
            assert GROUPS[first] not in before, f"{key} waited for a second key of {GROUPS[first]}"
            before.append(GROUPS[first])
            self.queue.add(first, self.now)
            self.queue.done(first, self.now)
            self.wanted[first] = self.now
        del self.wanted[key]
        self.busy.add(key)

    @invariant()
    def counts_agree(self) -> None:
        assert self.queue.busy == len(self.busy)
        assert self.queue.ready + self.queue.waiting <= len(self.wanted)
        assert not self.queue.drained

    def teardown(self) -> None:
        """Every requested key is eventually taken."""
        for key in sorted(self.busy):
            self.queue.done(key, self.now)
        assert set(all_ready(self.queue, self.now + 1e6)) == set(self.wanted)


TestWork = Work.TestCase
