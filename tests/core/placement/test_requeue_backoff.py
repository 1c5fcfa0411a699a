"""Which pods are requeued when capacity becomes free, and when a node has gained capacity."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.placement import requeue_backoff
from croupier.core.placement.requeue_backoff import (
    INITIAL_BACKOFF,
    MAX_BACKOFF,
    MAX_REQUEUED_AT_ONCE,
    MAX_WAITING,
    RequeueBackoff,
)
from croupier.core.pods.request_parser import LEDGER
from croupier.core.quantity import Quantity

AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 4).map(Quantity)
)


@dataclass(frozen=True)
class Guest:
    uid: str
    priority: int = 0
    namespace: str = "default"


def any_pod(_: Guest) -> bool:
    return True


def test_pods_are_requeued_by_priority_and_not_all_at_once():
    room: RequeueBackoff[Guest] = RequeueBackoff()
    for number in range(MAX_REQUEUED_AT_ONCE + 5):
        room.add(Guest(f"u{number}", priority=number))

    called = room.due(any_pod, 0.0)

    assert [pod.priority for pod in called] == sorted((pod.priority for pod in called), reverse=True)
    assert len(called) == MAX_REQUEUED_AT_ONCE
    assert len(room.due(any_pod, 0.0)) == 5, "then the remaining pods"
    assert room.due(any_pod, INITIAL_BACKOFF - 0.1) == []


def test_namespaces_take_turns_among_pods_of_the_same_priority():
    room: RequeueBackoff[Guest] = RequeueBackoff()
    for number in range(1000):
        room.add(Guest(f"many-{number}", namespace="many"))
    room.add(Guest("one", namespace="few"))
    room.add(Guest("urgent", priority=1, namespace="many"))

    assert [pod.uid for pod in room.due(any_pod, 0.0)[:4]] == ["urgent", "many-0", "one", "many-1"]


def test_the_namespace_with_the_most_pods_loses_one_if_there_are_too_many():
    room: RequeueBackoff[Guest] = RequeueBackoff()
    room.add(Guest("one", namespace="few"))
    for number in range(MAX_WAITING + 10):
        room.add(Guest(f"many-{number}", namespace="many"))

    assert len(room) == MAX_WAITING
    assert [pod.uid for pod in room.due(any_pod, 0.0)[:2]] == ["one", "many-11"]
    room.remove("one")
    assert len(room) == MAX_WAITING - 1


def test_every_failed_requeue_doubles_the_backoff():
    room: RequeueBackoff[Guest] = RequeueBackoff()
    room.add(Guest("u"))
    now, pauses = 0.0, []
    for _ in range(9):
        began = now
        while not room.due(any_pod, now):
            now += 1.0
        room.add(Guest("u"))  # refused again
        pauses.append(now - began)
    assert pauses == sorted(pauses)
    assert pauses[1:5] == [INITIAL_BACKOFF * 2**failed for failed in range(4)]
    assert pauses[-1] == MAX_BACKOFF


def test_a_removed_pod_is_not_requeued_and_starts_again_without_backoff():
    room: RequeueBackoff[Guest] = RequeueBackoff()
    room.add(Guest("u"))
    assert room.due(any_pod, 0.0)
    room.remove("u")
    assert (len(room), room.due(any_pod, 100.0)) == (0, [])
    room.add(Guest("u"))
    assert room.due(any_pod, 0.0) == [Guest("u")]


def test_the_removal_of_an_unknown_pod_changes_nothing():
    room: RequeueBackoff[Guest] = RequeueBackoff()
    room.add(Guest("u"))
    room.remove("unknown")

    assert room.due(any_pod, 0.0) == [Guest("u")]


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_a_node_that_fits_now_and_did_not_before_has_gained_resources(requests, before, after):
    if requeue_backoff.fits_allocatable(requests, after) and not requeue_backoff.fits_allocatable(
        requests, before
    ):
        assert requeue_backoff.gained_resources(before, after)
    assert not requeue_backoff.gained_resources(before, before)
    assert requeue_backoff.gained_resources(None, after), "a new node always has"


@given(AMOUNTS, AMOUNTS)
def test_the_ledger_resource_is_ignored(requests, allocatable):
    marked = {**requests, LEDGER: Quantity(1)}
    assert requeue_backoff.fits_allocatable(marked, allocatable) == requeue_backoff.fits_allocatable(
        requests, allocatable
    )
