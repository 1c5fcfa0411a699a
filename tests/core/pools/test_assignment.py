"""The pool of a card: by annotation, then by the rule of the pool, then by the module setting."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.model.sharing import Sharing
from croupier.core.pools import assignment
from croupier.core.pools.assignment import (
    MANUAL_APPROVAL,
    Approval,
    AssignableCard,
    Assignment,
    AssignmentPool,
)
from croupier.core.pools.mig_support import MigSupport
from croupier.core.pools.selection import CardFilter, CardSelector, CardTraits, LabelMatch

HERE = {"kubernetes.io/hostname": "node-1", "zone": "a"}
AUTOMATIC = Approval("Automatic")
FITS = {"1g.10gb": 7, "3g.40gb": 2}


def card(index: int = 0, **fields: Any) -> AssignableCard:
    labels = fields.pop("labels", {})
    profiles = frozenset(fields.pop("profiles", ()))
    return AssignableCard(CardTraits(f"card-{index}", index, labels=labels, profiles=profiles), **fields)


def pool(name: str = "team-a", **fields: Any) -> AssignmentPool:
    return AssignmentPool(name, resource=f"gpu.deckhouse.io/{name}", **fields)


def decide(
    subject: AssignableCard, *pools: AssignmentPool, approval: Approval = MANUAL_APPROVAL
) -> Assignment:
    return assignment.decide([subject], HERE, pools, approval)[subject.id]


def reasons(found: Assignment) -> list[str]:
    return [pending.reason for pending in found.pending]


def test_the_annotation_assigns_a_card_to_a_pool() -> None:
    assert decide(card(annotation="team-a"), pool()) == Assignment("team-a")


def test_without_the_annotation_the_card_waits_with_a_hint() -> None:
    found = decide(card(), pool("team-a"), pool("team-b"))

    assert found.pool == ""
    assert [(pending.reason, pending.pool, pending.hint) for pending in found.pending] == [
        ("AwaitingApproval", "team-a", "gpu.deckhouse.io/assignment=team-a"),
        ("AwaitingApproval", "team-b", "gpu.deckhouse.io/assignment=team-b"),
    ]


def test_a_restored_card_gets_its_annotation_back() -> None:
    """Its pods hold it in the pool, and its record was created again without the annotation."""
    restored = card(pool="team-a", annotation="team-a", restored=True)

    assert decide(restored, pool()) == Assignment("team-a", annotation="team-a")


def test_a_restored_card_that_the_pool_excludes_leaves_when_it_is_free() -> None:
    restored = card(pool="team-a", annotation="team-a", restored=True)
    elsewhere = pool(nodes=LabelMatch({"zone": "b"}))

    found = decide(restored, elsewhere)

    assert (found.pool, found.annotation) == ("", "")


WITHOUT_A_PERSON = {
    "the pool takes all cards": (pool(auto_assign_all=True), MANUAL_APPROVAL, True),
    "the pool takes it by labels": (
        pool(auto_assign_selector=LabelMatch({"tier": "gold"})),
        MANUAL_APPROVAL,
        True,
    ),
    "the labels do not match the pool": (
        pool(auto_assign_selector=LabelMatch({"tier": "silver"})),
        MANUAL_APPROVAL,
        False,
    ),
    "the module setting, for a pool without a rule": (pool(), AUTOMATIC, True),
    "the module setting by labels": (pool(), Approval("Selector", LabelMatch({"tier": "gold"})), True),
    "the module setting by other labels": (pool(), Approval("Selector", LabelMatch({"tier": "x"})), False),
    "the rule of the pool overrides the module setting": (
        pool(auto_assign_selector=LabelMatch({"tier": "silver"})),
        AUTOMATIC,
        False,
    ),
    "manual approval": (pool(), MANUAL_APPROVAL, False),
}


@pytest.mark.parametrize(("taker", "approval", "taken"), WITHOUT_A_PERSON.values(), ids=WITHOUT_A_PERSON)
def test_automatic_assignment(taker: AssignmentPool, approval: Approval, taken: bool) -> None:
    found = decide(card(labels={"tier": "gold"}), taker, approval=approval)

    assert (found.pool, found.annotation, found.auto) == (
        ("team-a", "team-a", True) if taken else ("", None, False)
    )


def test_a_card_that_two_pools_would_take_goes_to_neither() -> None:
    found = decide(card(), pool("team-a", auto_assign_all=True), pool("team-b", auto_assign_all=True))

    assert (found.pool, found.annotation, found.contested) == ("", None, ("team-a", "team-b"))
    assert reasons(found) == ["Declined", "Declined"]
    assert "pools team-a and team-b would all take card card-0" in found.pending[0].sentence


def test_the_rule_of_a_pool_overrides_the_module_setting() -> None:
    found = decide(card(), pool("team-a", auto_assign_all=True), pool("team-b"), approval=AUTOMATIC)

    assert (found.pool, found.contested) == ("team-a", ())


def test_the_annotation_overrides_two_automatic_pools() -> None:
    found = decide(
        card(annotation="team-b"), pool("team-a", auto_assign_all=True), pool("team-b", auto_assign_all=True)
    )

    assert (found.pool, found.contested) == ("team-b", ())


def test_a_newer_pool_does_not_take_a_card_of_another_pool() -> None:
    member = card(annotation="team-a", pool="team-a")

    found = decide(member, pool("team-a", auto_assign_all=True), pool("team-b", auto_assign_all=True))

    assert found == Assignment("team-a", auto=True)


MISMATCHES = {
    "unknown pool": (card(annotation="team-x"), "pool team-x does not exist"),
    "a pool that is being deleted": (card(annotation="old"), "pool old is being deleted"),
}


@pytest.mark.parametrize(("one", "why"), MISMATCHES.values(), ids=MISMATCHES)
def test_an_invalid_annotation_is_removed(one: AssignableCard, why: str) -> None:
    found = decide(one, pool(), pool("old", deleting=True))

    assert (found.pool, found.annotation) == ("", "")
    assert why in found.mismatch


def test_a_pool_that_is_being_deleted_keeps_its_cards() -> None:
    member = card(annotation="old", pool="old")

    assert decide(
        member, pool("old", deleting=True, devices=CardSelector(exclude=CardFilter(indexes=((0, 9),))))
    ).pool


def test_a_card_that_leaves_gets_no_pool_before_it_has_left() -> None:
    found = decide(card(pool="team-a"), pool("team-a", auto_assign_all=True))

    assert found == Assignment()


OUTSIDE = {
    "another node": pool(nodes=LabelMatch({"zone": "b"})),
    "another card": pool(devices=CardSelector(exclude=CardFilter(indexes=((0, 0),)))),
}


@pytest.mark.parametrize("narrow", OUTSIDE.values(), ids=OUTSIDE)
def test_outside_the_selectors(narrow: AssignmentPool) -> None:
    assert reasons(decide(card(), narrow)) == ["NoPoolMatched"]

    given_by_hand = decide(card(annotation="team-a"), narrow)
    assert (given_by_hand.pool, given_by_hand.annotation) == ("", None)
    assert reasons(given_by_hand) == ["OutOfSelector"]

    fell_out = decide(card(annotation="team-a", pool="team-a"), narrow)
    assert (fell_out.pool, fell_out.annotation) == ("", "")
    assert reasons(fell_out) == ["OutOfSelector"]


OBSTACLES = {
    "the card is faulted": ({"obstacle": "it is faulted"}, pool(), "it is faulted"),
    "the card lacks the profile": (
        {"mig": MigSupport(known=True, profiles={"1g.5gb"})},
        pool(sharing=Sharing("MIG", profile="1g.10gb")),
        "the card does not support the MIG profiles 1g.10gb",
    ),
    "the layout does not fit": (
        {"mig": MigSupport(known=True, profiles=FITS, fits=FITS)},
        pool(sharing=Sharing("MIG", layout=(("1g.10gb", 1), ("3g.40gb", 2)))),
        "MIG 1g.10gb:1,3g.40gb:2 does not fit on the card",
    ),
}


@pytest.mark.parametrize(("fields", "one", "why"), OBSTACLES.values(), ids=OBSTACLES)
def test_an_obstacle_keeps_a_card_out_but_does_not_remove_a_member(
    fields: dict[str, Any], one: AssignmentPool, why: str
) -> None:
    for newcomer, taker in ((card(annotation="team-a", **fields), one), (card(**fields), one)):
        found = decide(newcomer, taker)
        assert (found.pool, reasons(found)) == ("", ["Declined"])
        assert why in found.pending[0].sentence
    automatic = decide(card(**fields), replace(one, auto_assign_all=True))
    assert (automatic.pool, automatic.annotation, automatic.auto) == ("", None, True)

    assert decide(card(annotation="team-a", pool="team-a", **fields), one).pool == "team-a"


def test_a_card_with_unknown_profiles_is_assigned() -> None:
    small = pool(sharing=Sharing("MIG", profile="1g.10gb"))
    assert decide(card(annotation="team-a"), small).pool == "team-a"


def test_a_drained_card_is_assigned_only_by_annotation() -> None:
    eager = pool(auto_assign_all=True)

    assert decide(card(drained=True), eager).pool == ""
    assert decide(card(drained=True, annotation="team-a"), eager).pool == "team-a"


def test_an_excluded_card_has_no_pool_and_no_pending_entry() -> None:
    assert decide(card(excluded=True, annotation="team-a", pool="team-a"), pool()) == Assignment()


def test_of_two_pools_with_one_resource_the_younger_gets_nothing() -> None:
    old = replace(pool("team-a"), resource="gpu.deckhouse.io/x", created=datetime(2026, 1, 1, tzinfo=UTC))
    young = replace(pool("team-b"), resource="gpu.deckhouse.io/x", created=datetime(2026, 2, 1, tzinfo=UTC))

    assert assignment.older_duplicate(young, [old, young]) == "team-a"
    assert assignment.older_duplicate(old, [old, young]) is None
    assert reasons(decide(card(annotation="team-b"), old, young)) == ["Declined"]


def placed(cards: list[AssignableCard], *pools: AssignmentPool) -> dict[str, str]:
    found = assignment.decide(cards, HERE, pools)
    return {name: decision.pool for name, decision in found.items()}


def test_a_pool_takes_at_most_max_per_node_cards() -> None:
    four = [card(index) for index in range(4)]

    assert placed(four, pool(auto_assign_all=True, max_per_node=2)) == {
        "card-0": "team-a",
        "card-1": "team-a",
        "card-2": "",
        "card-3": "",
    }


def test_the_cards_with_the_lowest_indexes_come_first_and_unknown_ones_last() -> None:
    unknown = AssignableCard(CardTraits("card-0"))

    assert placed([unknown, card(10), card(9)], pool(auto_assign_all=True, max_per_node=1)) == {
        "card-0": "",
        "card-10": "",
        "card-9": "team-a",
    }


def test_members_come_first_then_annotated_cards() -> None:
    cards = [card(0), card(1, annotation="team-a"), card(2, annotation="team-a", pool="team-a")]

    assert placed(cards, pool(auto_assign_all=True, max_per_node=2)) == {
        "card-0": "",
        "card-1": "team-a",
        "card-2": "team-a",
    }


def test_of_too_many_members_the_idle_ones_leave() -> None:
    member = {"annotation": "team-a", "pool": "team-a"}
    cards = [card(0, **member), card(1, busy=True, **member)]

    found = assignment.decide(cards, HERE, [pool(max_per_node=1)])

    assert (found["card-0"].pool, found["card-0"].annotation) == ("", "")
    assert (found["card-1"].pool, found["card-1"].annotation) == ("team-a", None)


def test_a_leaving_card_occupies_its_place_but_removes_no_member() -> None:
    leaving, member = card(0, pool="team-a"), card(1, annotation="team-a", pool="team-a")

    assert placed([leaving, member, card(2)], pool(auto_assign_all=True, max_per_node=2)) == {
        "card-0": "",
        "card-1": "team-a",
        "card-2": "",
    }


names = st.sampled_from(["", "a", "b", "c"])
some_cards = st.lists(
    st.builds(
        lambda annotation, now, busy, obstacle: {
            "annotation": annotation,
            "pool": now,
            "busy": busy,
            "obstacle": obstacle,
        },
        names,
        names,
        st.booleans(),
        st.sampled_from(["", "it is faulted"]),
    ),
    max_size=6,
).map(lambda fields: [card(index, **one) for index, one in enumerate(fields)])
some_pools = st.lists(
    st.builds(
        pool,
        st.sampled_from(["a", "b"]),
        auto_assign_all=st.booleans(),
        max_per_node=st.none() | st.integers(1, 3),
        deleting=st.booleans(),
    ),
    max_size=2,
    unique_by=lambda one: one.name,
)
approvals = st.sampled_from([MANUAL_APPROVAL, AUTOMATIC])


@given(some_cards, some_pools, approvals)
def test_no_pool_gets_more_of_a_node_than_it_may(
    cards: list[AssignableCard], pools: list[AssignmentPool], how: Approval
) -> None:
    found = assignment.decide(cards, HERE, pools, how)

    for one in pools:
        if one.max_per_node is not None and not one.deleting:
            assert sum(1 for decision in found.values() if decision.pool == one.name) <= one.max_per_node


@given(some_cards, some_pools, approvals)
def test_every_card_has_a_pool_or_a_reason(
    cards: list[AssignableCard], pools: list[AssignmentPool], how: Approval
) -> None:
    found = assignment.decide(cards, HERE, pools, how)

    for one in cards:
        decision = found[one.id]
        leaves = one.pool not in ("", one.annotation)
        assert decision.pool or decision.pending or decision.mismatch or leaves
        assert decision.pool in {"", *(each.name for each in pools)}


@given(some_cards, some_pools, approvals)
def test_decisions_are_stable_once_they_are_written(
    cards: list[AssignableCard], pools: list[AssignmentPool], how: Approval
) -> None:
    """Once annotations are written and cards have moved, nothing changes any more."""
    for _ in range(3):
        found = assignment.decide(cards, HERE, pools, how)
        cards = [moved(one, found[one.id]) for one in cards]

    again = assignment.decide(cards, HERE, pools, how)

    assert all(decision.annotation is None for decision in again.values())
    assert [decision.pool for decision in again.values()] == [card.pool for card in cards]


def moved(before: AssignableCard, decision: Assignment) -> AssignableCard:
    written = before.annotation if decision.annotation is None else decision.annotation
    return replace(before, annotation=written, pool=decision.pool)
