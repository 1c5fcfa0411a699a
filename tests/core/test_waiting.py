"""Which pods are requeued when capacity becomes free, and when a node has gained capacity."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.placing import waiting
from croupier.core.placing.waiting import FIRST, LAST, MOST_AT_ONCE, WaitingRoom
from croupier.core.pods.request import MARK
from croupier.core.quantity import Quantity

AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 4).map(Quantity)
)


@dataclass(frozen=True)
class Guest:
    uid: str
    priority: int = 0


def any_pod(_: Guest) -> bool:
    return True


def test_pods_are_requeued_by_priority_and_not_all_at_once():
    room: WaitingRoom[Guest] = WaitingRoom()
    for number in range(MOST_AT_ONCE + 5):
        room.enter(Guest(f"u{number}", priority=number))

    called = room.call(any_pod, 0.0)

    assert [pod.priority for pod in called] == sorted((pod.priority for pod in called), reverse=True)
    assert len(called) == MOST_AT_ONCE
    assert len(room.call(any_pod, 0.0)) == 5, "then the remaining pods"
    assert room.call(any_pod, FIRST - 0.1) == []


def test_every_failed_requeue_doubles_the_backoff():
    room: WaitingRoom[Guest] = WaitingRoom()
    room.enter(Guest("u"))
    now, pauses = 0.0, []
    for _ in range(9):
        began = now
        while not room.call(any_pod, now):
            now += 1.0
        room.enter(Guest("u"))  # refused again
        pauses.append(now - began)
    assert pauses == sorted(pauses)
    assert pauses[1] == FIRST
    assert pauses[-1] == LAST


def test_a_removed_pod_is_not_requeued_and_starts_again_without_backoff():
    room: WaitingRoom[Guest] = WaitingRoom()
    room.enter(Guest("u"))
    assert room.call(any_pod, 0.0)
    room.leave("u")
    assert (len(room), room.call(any_pod, 100.0)) == (0, [])
    room.enter(Guest("u"))
    assert room.call(any_pod, 0.0) == [Guest("u")]


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_a_node_that_fits_now_and_did_not_before_has_gained_resources(requests, before, after):
    if waiting.could(requests, after) and not waiting.could(requests, before):
        assert waiting.opens(before, after)
    assert not waiting.opens(before, before)
    assert waiting.opens(None, after), "a new node always has"


@given(AMOUNTS, AMOUNTS)
def test_the_ledger_resource_is_ignored(requests, allocatable):
    marked = {**requests, MARK: Quantity(1)}
    assert waiting.could(marked, allocatable) == waiting.could(requests, allocatable)
