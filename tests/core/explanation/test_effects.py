"""A preview counts what pools gain now and later, and notes cards that move because of the change."""

from dataclasses import replace

import pytest

from croupier.core.explanation import effects
from croupier.core.pools.capacity import Capacity
from tests.core.explanation import fleet_worlds as worlds
from tests.core.explanation.fleet_worlds import (
    FITS,
    JOB,
    NODE,
    SHARED,
    SLICED,
    SMALL,
    act,
    card,
    held_by_job,
    pool,
    share,
    world,
)


def amounts(before: tuple[int, int], after: tuple[int, int], later: tuple[int, int] | None = None):
    """Total and used units of a pool, before, after and later."""
    return tuple(Capacity(*pair) for pair in (before, after, later or after))


CLOSED = [pool(withheld="its pool is in Maintenance", closed=True)]
AMOUNTS = {
    "a card joins": (world(card()), act("assign", pool="a"), {"a": amounts((0, 0), (1, 0))}),
    "a card joins a pool shared by percent": (
        world(card(), pools=[pool(sharing=SHARED)]),
        act("assign", pool="a"),
        {"a": amounts((0, 0), (100, 0))},
    ),
    "a card joins a pool of slices": (
        world(card(), pools=[pool(sharing=SLICED)]),
        act("assign", pool="a"),
        {"a": amounts((0, 0), (4, 0))},
    ),
    "a card joins a MIG pool": (
        world(card(fits=FITS, cut=()), pools=[pool(sharing=SMALL)]),
        act("assign", pool="a"),
        {"a": amounts((0, 0), (7, 0))},
    ),
    "a held card joins later": (
        world(card(), held=held_by_job(amount=50)),
        act("assign", pool="a"),
        {"a": amounts((0, 0), (0, 0), (1, 0))},
    ),
    "a drained card joins": (
        world(card(drain="fan")),
        act("assign", pool="a"),
        {"a": amounts((0, 0), (0, 0))},
    ),
    "a pool that declines is listed": (
        world(card(obstacle="it is faulted")),
        act("assign", pool="a"),
        {"a": amounts((0, 0), (0, 0))},
    ),
    "cards on other nodes count": (
        world(card(), elsewhere={"a": Capacity(5, 3)}),
        act("assign", pool="a"),
        {"a": amounts((5, 3), (6, 3))},
    ),
    "a card moves between pools": (
        world(card(pool="b", assigned=""), pools=[pool(), pool("b")]),
        act("assign", pool="a"),
        {"a": amounts((0, 0), (1, 0)), "b": amounts((0, 0), (0, 0))},
    ),
    "a free card leaves": (
        world(card(pool="a"), card(1, pool="a")),
        act("unassign"),
        {"a": amounts((2, 0), (1, 0))},
    ),
    "a held card leaves later": (
        world(card(pool="a"), held=held_by_job()),
        act("unassign"),
        {"a": amounts((1, 1), (1, 1), (0, 0))},
    ),
    "a half held card counts its held part only": (
        world(card(pool="a"), pools=[pool(sharing=SHARED)], held=held_by_job(amount=40)),
        act("drain"),
        {"a": amounts((100, 40), (40, 40), (0, 0))},
    ),
    "a drained card serves again": (
        world(card(pool="a", drain="fan")),
        act("undrain"),
        {"a": amounts((0, 0), (1, 0))},
    ),
    "a retired card": (world(card(pool="a")), act("retire"), {"a": amounts((1, 0), (0, 0))}),
    "two cards in one action": (
        world(card(pool="a"), card(1, pool="a"), held=held_by_job(1)),
        act("unassign", 0, 1),
        {"a": amounts((2, 1), (1, 1), (0, 0))},
    ),
    "a held card that leaves already": (
        world(card(pool="a", assigned=""), held=held_by_job()),
        act("unassign"),
        {"a": amounts((1, 1), (1, 1), (0, 0))},
    ),
    "a card that only waits for its pool to open": (
        world(card(), pools=CLOSED),
        act("assign", pool="a"),
        {"a": amounts((0, 0), (1, 0))},
    ),
    "a drained card of a closed pool": (
        world(card(pool="a"), pools=CLOSED),
        act("drain"),
        {"a": amounts((1, 0), (0, 0))},
    ),
    "a card that would join anyway does not count": (
        world(card(pool="a"), card(1), pools=[pool(auto_assign_all=True)]),
        act("drain"),
        {"a": amounts((1, 0), (0, 0))},
    ),
    "a card of a node without management": (
        world(card(retired=True, managed=False), pools=[pool(auto_assign_all=True)]),
        act("unretire"),
        {},
    ),
    "a card of no pool": (world(card()), act("drain"), {}),
    "nothing to do": (world(card(pool="a", drain="fan")), act("drain", reason="fan"), {}),
}


@pytest.mark.parametrize(("seen", "action", "pools"), AMOUNTS.values(), ids=AMOUNTS)
def test_amounts_of_pools(seen, action, pools):
    found = effects.preview(seen, action)

    assert {one.pool: (one.before, one.after, one.later) for one in found.pools} == pools
    assert all(one.unit == seen.pools[one.pool].unit for one in found.pools)


def test_booked_units_stay_booked():
    (found,) = effects.preview(world(card(), pools=[pool(booked=2)]), act("assign", pool="a")).pools

    assert [one.booked for one in (found.before, found.after, found.later)] == [2, 2, 2]


def test_the_capacity_now_is_the_amount_before():
    seen = world(card(pool="a"), card(1, pool="a"), held=held_by_job())

    (found,) = effects.preview(seen, act("drain", 1)).pools

    assert effects.capacity_now(seen, "a") == found.before == Capacity(2, 1)


SEAT = [pool(auto_assign_all=True, max_per_node=1)]
NOTES = {
    "a card that takes the place of another": (
        world(card(pool="a"), card(1), pools=SEAT),
        act("retire"),
        ("card card-1 joins pool a because of this change",),
    ),
    "no place, while a pod holds the card": (
        world(card(pool="a"), card(1), pools=SEAT, held=held_by_job()),
        act("retire"),
        ("card card-1 joins pool a later because of this change",),
    ),
    "a card that would join anyway": (
        world(card(pool="a"), card(1), pools=[pool(auto_assign_all=True)]),
        act("drain"),
        (),
    ),
}


@pytest.mark.parametrize(("seen", "action", "notes"), NOTES.values(), ids=NOTES)
def test_cards_that_move_because_of_the_change_are_noted(seen, action, notes):
    assert effects.preview(seen, action).notes == notes


def test_only_nodes_of_the_named_cards_are_considered():
    far = worlds.node([card(7, pool="a")], [pool()], {}, name="node-2")
    near = world(card(pool="a"))
    seen = replace(near, nodes={**near.nodes, "node-2": far})

    found = effects.preview(seen, act("unassign"))

    assert found.ledgers.keys() == {NODE}
    assert [(one.before.total, one.after.total, one.later.total) for one in found.pools] == [(2, 1, 1)]


def test_a_card_of_a_silent_node_joins_without_serving():
    seen = world(card())
    silent = replace(seen, nodes={NODE: replace(seen.nodes[NODE], silent=True)})

    found = effects.preview(silent, act("assign", pool="a"))

    assert [(one.pool, one.healthy) for one in found.ledgers[NODE].cards] == [("a", False)]
    assert [one.after for one in found.pools] == [Capacity()]


def test_a_pod_with_two_cards_ends_on_both():
    both = (*share(0), *share(1))
    seen = world(card(pool="a"), card(1, pool="a"), held={JOB: both})

    (found,) = effects.preview(seen, act("unassign")).pools

    assert (found.after, found.later) == (Capacity(2, 2), Capacity(1, 0))


def test_a_declined_undrain_changes_nothing():
    """The change of the pool drains the card again, so no pod could start on it."""
    found = effects.preview(world(card(pool="a", drain="x", drained_by_pool=True)), act("undrain"))

    assert found.cards[0].outcome == "declined"
    assert found.ledgers == {}
    assert found.pools == ()
