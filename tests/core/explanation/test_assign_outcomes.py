"""A card joins or leaves its pool now, once its holders have ended, or not, and the sentence says why."""

from dataclasses import replace

import pytest

from croupier.core.explanation import card_outcomes
from croupier.core.explanation.card_outcomes import CardMove
from croupier.core.explanation.fleet import Fleet
from croupier.core.model.card import MigSlot
from croupier.core.pools.assignment import Assignment, PendingAssignment
from tests.core.explanation.fleet_worlds import (
    FITS,
    SMALL,
    act,
    card,
    effect,
    held_by_job,
    only,
    pool,
    world,
)

CLOSED = "its pool is in Maintenance"
AUTOMATIC = (pool(auto_assign_all=True),)
A_AND_B = (pool(), pool("b"))
MIG = (pool(sharing=SMALL),)
CUT = (MigSlot("3g.40gb-0", "3g.40gb", 0, 4),)
TWO_STEPS = (
    "is assigned to pool b, so this takes two steps: unassign it and wait until it is Unassigned, "
    "then assign it to pool a"
)
RETIRED = "is retired, so it joins no pool: first run `croupier retire --undo card-0`"
DISABLED = "is not managed: a label of its node disables its cards, so it joins no pool"

ASSIGN = {
    "a free card": (world(card()), "now", "joins pool a now"),
    "a card of the pool": (world(card(pool="a")), "unchanged", "is in pool a already"),
    "a held card that leaves the pool": (
        world(card(pool="a", assigned=""), held=held_by_job()),
        "now",
        "joins pool a now",
    ),
    "a card of another pool": (world(card(pool="b"), pools=A_AND_B), "later", TWO_STEPS),
    "a card that waits for another pool": (world(card(assigned="b"), pools=A_AND_B), "later", TWO_STEPS),
    "a free card that leaves another pool": (
        world(card(pool="b", assigned=""), pools=A_AND_B),
        "now",
        "joins pool a now",
    ),
    "a held card": (
        world(card(), held=held_by_job(amount=50)),
        "later",
        "joins pool a when team/job has ended",
    ),
    "a held card that leaves another pool": (
        world(card(pool="b", assigned=""), pools=A_AND_B, held=held_by_job()),
        "later",
        "leaves pool b and joins pool a when team/job has ended",
    ),
    "a card of a node without management": (world(card(managed=False)), "declined", DISABLED),
    "a retired card": (world(card(retired=True)), "declined", RETIRED),
    "a card that the pool does not select": (
        world(card(), pools=[pool(devices=only(1))]),
        "declined",
        "card card-0 does not match the nodeSelector or deviceSelector of pool a",
    ),
    "a card too many": (
        world(card(), card(1, pool="a"), pools=[pool(max_per_node=1)]),
        "declined",
        "pool a does not take card card-0 now: the pool takes at most 1 card of a node "
        "(allocation.maxDevicesPerNode)",
    ),
    "a faulted card": (
        world(card(obstacle="it is faulted", defect="it is faulted")),
        "declined",
        "pool a does not take card card-0 now: it is faulted",
    ),
    "a card without the MIG profile": (
        world(card(known_profiles=True), pools=[pool(sharing=SMALL)]),
        "declined",
        "pool a does not take card card-0 now: the card does not support the MIG profiles 1g.10gb",
    ),
    "a card to partition": (
        world(card(fits=FITS, cut=()), pools=MIG),
        "now",
        "joins pool a now and is partitioned for MIG 1g.10gb",
    ),
    "a held card to partition": (
        world(card(fits=FITS, cut=()), pools=MIG, held=held_by_job()),
        "later",
        "joins pool a when team/job has ended and is partitioned for MIG 1g.10gb",
    ),
    "a partitioned card": (
        world(card(cut=CUT)),
        "now",
        "joins pool a now and is partitioned for Exclusive",
    ),
    "a card whose partitions are unknown": (world(card(fits=FITS), pools=MIG), "now", "joins pool a now"),
    "a drained card": (
        world(card(drain="fan"), pools=[pool(withheld=CLOSED)]),
        "now",
        "joins pool a now, but gets no pods because it is drained",
    ),
    "a held card that leaves a pool which does not select it any more": (
        world(card(pool="a", assigned=""), pools=[pool(devices=only(1))], held=held_by_job()),
        "declined",
        "card card-0 does not match the nodeSelector or deviceSelector of pool a",
    ),
    "a closed pool": (
        world(card(), pools=[pool(withheld=CLOSED)]),
        "now",
        "joins pool a now; it gets no pods until the pool opens: its pool is in Maintenance",
    ),
}

UNASSIGN = {
    "a card of no pool": (world(card()), "unchanged", "is in no pool"),
    "a free card": (world(card(pool="a")), "now", "leaves pool a now"),
    "a card that waits for its pool": (
        world(card(assigned="a", obstacle="it is faulted")),
        "now",
        "leaves pool a now",
    ),
    "a held card": (
        world(card(pool="a"), held=held_by_job()),
        "later",
        "gets no new pods now, and leaves pool a when team/job has ended",
    ),
    "a held card that leaves already": (
        world(card(pool="a", assigned=""), held=held_by_job()),
        "later",
        "gets no new pods now, and leaves pool a when team/job has ended",
    ),
    "a card that another pool takes automatically": (
        world(card(pool="a"), pools=[pool(), pool("b", auto_assign_all=True)]),
        "now",
        "leaves pool a now, and pool b takes it automatically",
    ),
    "a held card that the pool takes again automatically": (
        world(card(pool="a"), pools=AUTOMATIC, held=held_by_job()),
        "declined",
        "leaves its pool, and pool a takes it again: the pool takes matching cards automatically; "
        "change its deviceSelector or deviceAssignment first",
    ),
    "a card that the pool takes automatically": (
        world(card(pool="a"), pools=AUTOMATIC),
        "declined",
        "leaves its pool, and pool a takes it again: the pool takes matching cards automatically; "
        "change its deviceSelector or deviceAssignment first",
    ),
}

CASES = {
    f"{action.verb} {name}": (seen, action, outcome, sentence)
    for action, table in ((act("assign", pool="a"), ASSIGN), (act("unassign"), UNASSIGN))
    for name, (seen, outcome, sentence) in table.items()
}


@pytest.mark.parametrize(("seen", "action", "outcome", "sentence"), CASES.values(), ids=CASES)
def test_outcome(seen, action, outcome, sentence):
    found = effect(seen, action)

    assert (found.outcome, found.sentence) == (outcome, sentence)


DECLINED_WITH = {
    "an invalid annotation": (Assignment(), "pool a is being deleted", "pool a is being deleted"),
    "no reason": (Assignment(), "", "does not join pool a"),
    "a reason of another pool": (
        Assignment(pending=(PendingAssignment("Declined", "pool b is full", "b"),)),
        "",
        "does not join pool a",
    ),
}


@pytest.mark.parametrize(("answer", "mismatch", "sentence"), DECLINED_WITH.values(), ids=DECLINED_WITH)
def test_an_assignment_that_the_controller_refuses(answer, mismatch, sentence):
    move = CardMove(card(), card(), card(), answer, mismatch, None, Fleet({}, {}))

    assert card_outcomes.decide(move, act("assign", pool="a")) == ("declined", sentence)


def test_a_pool_that_is_being_deleted_is_named():
    found = effect(world(card(), pools=[pool("old", deleting=True)]), act("assign", pool="old"))

    assert found.outcome == "declined"
    assert "old" in found.sentence
    assert "deleted" in found.sentence


def test_only_an_assignment_can_need_two_steps():
    other = card(pool="b")

    assert card_outcomes.in_other_pool(other, act("assign", pool="a"))
    assert not card_outcomes.in_other_pool(other, act("assign", pool="b"))
    assert not card_outcomes.in_other_pool(other, act("unassign"))
    assert not card_outcomes.in_other_pool(replace(other, card=card().card), act("assign", pool="a"))
