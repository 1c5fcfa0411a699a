"""Slots are shared fairly: a peer without a slot gets one, from the peer that has the most."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.kube.serving.fair_slots import FairSlots, NoSlot, SlotLimits

LIMITS = SlotLimits(total=6, per_peer=4)


def filled(**held: int) -> FairSlots[str]:
    slots: FairSlots[str] = FairSlots(LIMITS)
    for peer, count in held.items():
        for number in range(count):
            assert slots.take(peer, f"{peer}{number}") is None
    return slots


CASES = {
    "a free slot": ({"a": 3}, "b", None),
    "a new peer takes the oldest slot of the peer with the most": ({"a": 4, "b": 2}, "c", "a0"),
    "a peer with fewer takes one as well": ({"a": 4, "b": 2}, "b", "a0"),
}


@pytest.mark.parametrize(("held", "peer", "loser"), CASES.values(), ids=CASES)
def test_who_loses_a_slot(held, peer, loser):
    slots = filled(**held)

    assert slots.take(peer, "new") == loser
    assert slots.held_by(peer) == held.get(peer, 0) + 1
    assert len(slots) == sum(held.values()) + (loser is None)


REFUSED = {
    "more than a peer may have": ({"a": 4}, "a"),
    "no more than the others have": ({"a": 3, "b": 3}, "a"),
    "nor one more than them": ({"a": 2, "b": 3, "c": 1}, "a"),
}


@pytest.mark.parametrize(("held", "peer"), REFUSED.values(), ids=REFUSED)
def test_a_peer_with_its_share_gets_no_more(held, peer):
    slots = filled(**held)
    with pytest.raises(NoSlot):
        slots.take(peer, "new")
    assert {name: slots.held_by(name) for name in held} == held


def test_a_holder_that_lost_its_slot_releases_nothing():
    slots = filled(a=4, b=2)
    slots.take("c", "new")
    slots.release("a", "a0")
    slots.release("d", "unknown")

    assert (slots.held_by("a"), len(slots)) == (3, 6)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=60))
def test_the_limits_hold_and_a_new_peer_always_gets_a_slot(steps):
    slots: FairSlots[int] = FairSlots(LIMITS)
    held: dict[str, list[int]] = {peer: [] for peer in "abcdefgh"}
    for number, (peer, releases) in enumerate(steps):
        if releases and held[peer]:
            slots.release(peer, held[peer].pop())
            continue
        try:
            loser = slots.take(peer, number)
        except NoSlot:
            assert held[peer], "a peer without a slot is never refused"
        else:
            for holders in held.values():
                if loser in holders:
                    holders.remove(loser)
            held[peer].append(number)
        assert {name: slots.held_by(name) for name in held} == {name: len(held[name]) for name in held}
        assert len(slots) <= LIMITS.total
        assert all(len(holders) <= LIMITS.per_peer for holders in held.values())
