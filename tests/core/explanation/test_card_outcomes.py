"""The sentence about one card says what the controllers will do with it: now, later or not at all."""

import pytest

from croupier.core.explanation import card_outcomes, effects
from croupier.core.model.withheld import Withheld
from tests.core.explanation.fleet_worlds import (
    SHARED,
    act,
    card,
    effect,
    held_by_job,
    pool,
    share,
    world,
)

AUTOMATIC = (pool(auto_assign_all=True),)

DRAIN = {
    "a free card": (world(card(pool="a")), "now", "gets no new pods; no pod holds it"),
    "a held card": (
        world(card(pool="a"), held=held_by_job()),
        "later",
        "gets no new pods now, and is free when team/job has ended",
    ),
    "a card with two holders": (
        world(
            card(pool="a"),
            pools=[pool(sharing=SHARED)],
            held={"team/b/u2": share(amount=20), "team/a/u1": share(amount=30)},
        ),
        "later",
        "gets no new pods now, and is free when team/a, team/b have ended",
    ),
    "a card drained for this reason": (
        world(card(drain="fan")),
        "unchanged",
        "is drained for this reason already",
    ),
    "a card drained for another reason": (
        world(card(drain="by hand")),
        "now",
        "gets no new pods; no pod holds it",
    ),
}

UNDRAIN = {
    "a card that is not drained": (world(card()), "unchanged", "is not drained"),
    "a card that its pool drains": (
        world(card(pool="a", drain="pool a changes", drained_by_pool=True)),
        "declined",
        "is not drained: pool a changes it, and gives it back itself",
    ),
    "a drained card": (world(card(pool="a", drain="fan")), "now", "gets new pods again"),
    "a retired card": (
        world(card(drain="fan", retired=True)),
        "now",
        "is not drained any more, but gets no pods: it is retired",
    ),
    "a faulted card": (
        world(card(drain="fan", defect="the agent of its node is silent")),
        "now",
        "is not drained any more, but gets no pods: the agent of its node is silent",
    ),
    "a card that is repartitioned": (
        world(card(drain="fan", blocked=Withheld("Changing", "it is being repartitioned"))),
        "now",
        "is not drained any more, but gets no pods: it is being repartitioned",
    ),
    "a held card that leaves its pool": (
        world(card(pool="a", assigned="", drain="fan"), held=held_by_job()),
        "now",
        "is not drained any more, but gets no pods: it is leaving pool a",
    ),
}

RETIRE = {
    "a retired card": (world(card(retired=True)), "unchanged", "is retired already"),
    "a free card": (world(card()), "now", "counts as no capacity any more"),
    "a free card of a pool": (
        world(card(pool="a")),
        "now",
        "leaves pool a and counts as no capacity any more",
    ),
    "a held card": (
        world(card(), held=held_by_job(amount=10)),
        "later",
        "gets no new pods now, and counts as no capacity when team/job has ended",
    ),
    "a held card of a pool": (
        world(card(pool="a"), held=held_by_job()),
        "later",
        "gets no new pods now, and leaves pool a and counts as no capacity when team/job has ended",
    ),
    "a retired card that still has to leave": (
        world(card(pool="a", assigned="", retired=True), held=held_by_job()),
        "later",
        "gets no new pods now, and leaves pool a and counts as no capacity when team/job has ended",
    ),
}

UNRETIRE = {
    "a held card that is still leaving": (
        world(card(pool="a", assigned="", retired=True), held=held_by_job()),
        "later",
        "is used again, and leaves pool a when team/job has ended",
    ),
    "a card in use": (world(card()), "unchanged", "is not retired"),
    "a card of a node without management": (
        world(card(retired=True, managed=False)),
        "now",
        "is not retired any more, but stays unused: a label of its node disables its cards",
    ),
    "a card that a pool takes": (
        world(card(retired=True), pools=AUTOMATIC),
        "now",
        "is used again, and pool a takes it automatically",
    ),
    "a card that no pool takes": (world(card(retired=True)), "now", "is used again; assign it to a pool"),
}

CASES = {
    f"{action.verb} {name}": (seen, action, outcome, sentence)
    for action, table in (
        (act("drain", reason="fan"), DRAIN),
        (act("undrain"), UNDRAIN),
        (act("retire"), RETIRE),
        (act("unretire"), UNRETIRE),
    )
    for name, (seen, outcome, sentence) in table.items()
}


@pytest.mark.parametrize(("seen", "action", "outcome", "sentence"), CASES.values(), ids=CASES)
def test_outcome(seen, action, outcome, sentence):
    found = effect(seen, action)

    assert (found.outcome, found.sentence) == (outcome, sentence)


def test_a_drain_without_a_reason_is_by_hand():
    assert effect(world(card(drain="by hand")), act("drain")).outcome == "unchanged"
    assert effect(world(card(drain="")), act("drain")).outcome == "now"


def test_a_retired_card_can_get_another_reason():
    retired = world(card(retired=True, retired_for="worn out"))

    assert effect(retired, act("retire", reason="worn out")).outcome == "unchanged"
    assert effect(retired, act("retire", reason="no spare fan")).sentence == (
        "is retired already, and gets this reason"
    )


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (act("drain", reason="fan"), Withheld("Drained", "fan")),
        (act("retire", reason="fan"), Withheld("Retired", "fan")),
    ],
    ids=["drain", "retire"],
)
def test_the_ledger_after_the_action_knows_the_reason(action, expected):
    (ledger,) = effects.preview(world(card()), action).ledgers.values()

    assert ledger.cards[0].withheld == expected


def test_the_effect_names_the_ledger_entry_of_a_held_card_only():
    held, free = (effect(seen, act("drain")) for seen in (world(card(), held=held_by_job()), world(card())))

    assert held.held is not None
    assert dict(held.held.holders) == {"team/job/u1": 100}
    assert free.held is None


NAMED = {
    "no holder": ([], "its pods have"),
    "one": (["team/a/u1"], "team/a has"),
    "a Reservation that waits for its pod": (["team/a"], "team/a has"),
    "one pod with two shares": (["team/a/u1", "team/a/u1"], "team/a has"),
    "two, sorted": (["team/b/u2", "team/a/u1"], "team/a, team/b have"),
    "one hidden": (["hidden/_1"], "1 pod of another namespace has"),
    "one hidden pod with two shares": (["hidden/_1", "hidden/_1"], "1 pod of another namespace has"),
    "two hidden": (["hidden/_1", "hidden/_2"], "2 pods of other namespaces have"),
    "both kinds": (["hidden/_1", "team/a/u1"], "team/a and 1 pod of another namespace have"),
    "a namespace called hidden": (["hidden/job/u1"], "hidden/job has"),
    "many": (
        [f"team/{name}/u" for name in "abcdefg"],
        "team/a, team/b, team/c, team/d, team/e and 2 more have",
    ),
}


@pytest.mark.parametrize(("holders", "named"), NAMED.values(), ids=NAMED)
def test_holders_are_named_briefly_and_hidden_ones_counted(holders, named):
    assert card_outcomes.named_holders(holders) == named
