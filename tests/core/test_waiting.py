"""Who is called when something is there for those who wait, and what counts as something."""

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


def anybody(_: Guest) -> bool:
    return True


def test_the_most_important_are_called_first_and_not_all_at_once():
    room: WaitingRoom[Guest] = WaitingRoom()
    for number in range(MOST_AT_ONCE + 5):
        room.enter(Guest(f"u{number}", priority=number))

    called = room.call(anybody, 0.0)

    assert [one.priority for one in called] == sorted((one.priority for one in called), reverse=True)
    assert len(called) == MOST_AT_ONCE
    assert len(room.call(anybody, 0.0)) == 5, "and then those who were left"
    assert room.call(anybody, FIRST - 0.1) == []


def test_every_call_that_led_to_nothing_makes_the_next_later():
    room: WaitingRoom[Guest] = WaitingRoom()
    room.enter(Guest("u"))
    now, pauses = 0.0, []
    for _ in range(9):
        began = now
        while not room.call(anybody, now):
            now += 1.0
        room.enter(Guest("u"))  # refused again
        pauses.append(now - began)
    assert pauses == sorted(pauses)
    assert pauses[1] == FIRST
    assert pauses[-1] == LAST


def test_who_left_is_not_called_and_comes_back_as_new():
    room: WaitingRoom[Guest] = WaitingRoom()
    room.enter(Guest("u"))
    assert room.call(anybody, 0.0)
    room.leave("u")
    assert (len(room), room.call(anybody, 100.0)) == (0, [])
    room.enter(Guest("u"))
    assert room.call(anybody, 0.0) == [Guest("u")]


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_a_node_that_can_take_now_what_it_could_not_before_has_opened(requests, before, after):
    if waiting.could(requests, after) and not waiting.could(requests, before):
        assert waiting.opens(before, after)
    assert not waiting.opens(before, before)
    assert waiting.opens(None, after), "a new one always has"


@given(AMOUNTS, AMOUNTS)
def test_no_node_has_the_mark_and_none_needs_it(requests, allocatable):
    marked = {**requests, MARK: Quantity(1)}
    assert waiting.could(marked, allocatable) == waiting.could(requests, allocatable)
