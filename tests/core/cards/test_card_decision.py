"""Conditions of cards, and of nodes with cards without a pool."""

from dataclasses import replace

import pytest

from croupier.core.cards import card_decision
from croupier.core.cards.card_decision import CardDecision, CurrentCard
from croupier.core.cards.lifecycle import CLEAN, CardFacts, CardTrouble
from croupier.core.pools.assignment import Approval, AssignableCard, Assignment, AssignmentPool
from croupier.core.pools.selection import CardTraits

FIT = CardFacts(checked=True, prepared=True, clean=CLEAN, occupancy="Free")
BROKEN = CardTrouble("CriticalXID", "XID 79 was reported")
TEAM = AssignmentPool("team-a", "gpu.deckhouse.io/team-a")
EAGER = replace(TEAM, auto_assign_all=True)


def card(index: int = 0, **about) -> AssignableCard:
    return AssignableCard(CardTraits(f"node-1-gpu-{index}", index=index), **about)


def goes(phase, facts: CardFacts, pools=(TEAM,), **about) -> CardDecision:
    standing = CurrentCard(card(**about), phase, facts)
    return card_decision.decide([standing], {}, pools, Approval())["node-1-gpu-0"]


SAID = {
    "a healthy card": ("Ready", FIT, {"ReadyForPooling": "True Ready", "Faulted": "False Healthy"}),
    "a faulted card": (
        "Ready",
        replace(FIT, fault=BROKEN, clean=0),
        {"ReadyForPooling": "False Faulted", "Faulted": "True CriticalXID"},
    ),
    "a recovering card": (
        "Faulted",
        replace(FIT, clean=1),
        {"ReadyForPooling": "False Faulted", "Faulted": "True Recovering"},
    ),
    "a card of a node without a driver": (
        "Validating",
        replace(FIT, prepared=False, trouble=CardTrouble("DriverMissing", "no driver")),
        {"Faulted": "True DriverMissing"},
    ),
    "a card that is not validated": ("Discovered", CardFacts(), {"ReadyForPooling": "False NotChecked"}),
    "a card of an incomplete inventory": (
        "Ready",
        replace(FIT, incomplete="GFD counts 8, NFD 7"),
        {"ReadyForPooling": "False InventoryIncomplete"},
    ),
    "a card of a node that is not managed": (
        "Ready",
        replace(FIT, managed=False),
        {"ReadyForPooling": "False NotManaged", "ManagedDisabled": "True NodeLabel"},
    ),
}


@pytest.mark.parametrize(("phase", "facts", "said"), SAID.values(), ids=SAID)
def test_the_conditions_of_a_card(phase, facts, said):
    told = {one.type: f"{one.status} {one.reason}" for one in card_decision.conditions(goes(phase, facts))}

    assert set(told) == set(card_decision.CONDITIONS)
    assert said.items() <= told.items()


def test_an_ignored_card_has_only_one_condition():
    told = card_decision.conditions(goes("Faulted", replace(FIT, ignored=True, fault=BROKEN), excluded=True))

    assert [(one.type, one.status) for one in told] == [("Ignored", "True")]


def test_an_automatic_pool_takes_the_card_only_after_the_annotation_is_stored():
    """Until then the card may be withdrawn for another reason."""
    withdrawn = replace(FIT, occupancy="Withdrawn")

    first = goes("Ready", withdrawn, [EAGER])
    assert (first.phase, first.pool) == ("PendingAssignment", "")
    assert first.assignment.annotation == "team-a"

    then = goes(first.phase, withdrawn, [EAGER], annotation="team-a")
    assert (then.phase, then.pool) == ("Assigned", "team-a")


def test_a_card_leaves_its_pool_only_after_its_annotation_is_removed():
    """The ledger learns from the annotation that the card leaves."""
    elsewhere = replace(TEAM, nodes=replace(TEAM.nodes, equal={"zone": "b"}))
    withdrawn = replace(FIT, occupancy="Withdrawn")

    first = goes("Assigned", withdrawn, [elsewhere], annotation="team-a", pool="team-a")
    assert (first.phase, first.pool) == ("Assigned", "team-a")
    assert first.assignment.annotation == ""

    then = goes("Assigned", withdrawn, [elsewhere], pool="team-a")
    assert (then.phase, then.pool) == ("Ready", "")


def test_cards_without_a_pool_are_named():
    here = [
        CurrentCard(card(0), "Ready", FIT),
        CurrentCard(card(1, annotation="team-a", pool="team-a"), "Assigned", FIT),
        CurrentCard(card(2), "Faulted", replace(FIT, fault=BROKEN)),
    ]
    judged = card_decision.unassigned(card_decision.decide(here, {}, [TEAM], Approval()))

    assert (judged.status, judged.reason) == ("True", "AwaitingApproval")
    assert judged.message == "1 of 3 cards has no pool: node-1-gpu-0"


def test_a_node_whose_cards_all_have_a_pool():
    ways = {"a": CardDecision("InUse", "team-a", FIT, Assignment("team-a"))}

    assert card_decision.unassigned(ways).status == "False"
