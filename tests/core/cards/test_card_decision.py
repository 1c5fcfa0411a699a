"""Conditions of cards, and of nodes with cards without a pool."""

from dataclasses import replace

import pytest

from croupier.core.cards import card_decision
from croupier.core.cards.card_decision import CardDecision, CurrentCard
from croupier.core.cards.lifecycle import CLEAN, CardFacts, CardTrouble
from croupier.core.model.sharing import Sharing
from croupier.core.pools.assignment import Approval, AssignableCard, Assignment, AssignmentPool
from croupier.core.pools.mig_support import MigSupport
from croupier.core.pools.selection import CardFilter, CardSelector, CardTraits

FIT = CardFacts(checked=True, prepared=True, clean=CLEAN, occupancy="Free")
BROKEN = CardTrouble("CriticalXID", "XID 79 was reported")
TEAM = AssignmentPool("team-a", "gpu.deckhouse.io/team-a")
EAGER = replace(TEAM, auto_assign_all=True)


def card(index: int = 0, **about) -> AssignableCard:
    return AssignableCard(CardTraits(f"node-1-gpu-{index}", index=index), **about)


def goes(phase, facts: CardFacts, pools=(TEAM,), *, declined=False, **about) -> CardDecision:
    standing = CurrentCard(card(**about), phase, facts, declined=declined)
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


NARROW = replace(TEAM, devices=CardSelector(CardFilter(indexes=((7, 7),))))
MIG = replace(TEAM, sharing=Sharing("MIG", profile="7g.90gb"))
OTHER = AssignmentPool("team-b", "gpu.deckhouse.io/team-b")

DECLINED = {
    "its selectors exclude the card": ([NARROW, OTHER], {}, "OutOfSelector", "does not match"),
    "it has enough cards of the node": (
        [replace(TEAM, max_per_node=0), OTHER],
        {},
        "Declined",
        "at most 0 cards of a node",
    ),
    "the card lacks its MIG profile": (
        [MIG, OTHER],
        {"mig": MigSupport(known=True)},
        "Declined",
        "does not support the MIG profiles 7g.90gb",
    ),
}


@pytest.mark.parametrize(("pools", "about", "reason", "words"), DECLINED.values(), ids=DECLINED)
def test_the_pool_in_the_annotation_declines_the_card_because(pools, about, reason, words):
    found = goes("PendingAssignment", FIT, pools, annotation="team-a", **about)

    assert found.declined is not None
    assert (found.declined.pool, found.declined.reason) == ("team-a", reason)
    assert words in found.declined.message
    assert "team-b" not in found.declined.message
    assert found.pool == ""


NOT_DECLINED = {
    "without annotation": {},
    "in its pool": {"annotation": "team-a", "pool": "team-a"},
    "that leaves another pool": {"annotation": "team-a", "pool": "team-b"},
    "that is retired": {"annotation": "team-a", "excluded": True},
}


@pytest.mark.parametrize("about", NOT_DECLINED.values(), ids=NOT_DECLINED)
def test_no_pool_declines_a_card(about):
    assert goes("PendingAssignment", FIT, [NARROW, OTHER], declined=True, **about).declined is None


def test_a_card_that_is_not_ready_is_kept_for_its_pool():
    found = goes("Discovered", CardFacts(), annotation="team-a")

    assert found.declined is None
    assert [entry.reason for entry in found.assignment.pending] == ["Declined"]


def test_a_declined_card_joins_only_after_the_ledger_has_withdrawn_it_again():
    """While it was declined the ledger offered it: `Withdrawn` may be older than a pod's hold."""
    stale = goes("PendingAssignment", replace(FIT, occupancy="Withdrawn"), declined=True, annotation="team-a")
    assert stale.declined is not None
    assert (stale.pool, stale.declined.message) == (
        "",
        "pool team-a takes card node-1-gpu-0 as soon as the ledger offers the card again",
    )

    offered = goes("PendingAssignment", FIT, declined=True, annotation="team-a")
    assert (offered.pool, offered.declined) == ("", None)
    joins = goes("PendingAssignment", replace(FIT, occupancy="Withdrawn"), annotation="team-a")
    assert (joins.phase, joins.pool) == ("Assigned", "team-a")


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
