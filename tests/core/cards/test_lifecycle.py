"""Invariants of the card lifecycle: it terminates, and a card changes its pool only when it is withdrawn."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import lifecycle
from croupier.core.cards.lifecycle import CLEAN, CardFacts, CardPhase, CardTrouble, Occupancy

PHASES: tuple[CardPhase, ...] = get_args(CardPhase)
POOLS = ("", "team-a", "team-b")
BROKEN = CardTrouble("CriticalXID", "XID 79 was reported")
NO_DRIVER = CardTrouble("DriverMissing", "no driver is loaded")
FIT = CardFacts(checked=True, prepared=True, clean=CLEAN, occupancy="Free")

facts_of_cards = st.builds(
    CardFacts,
    managed=st.booleans(),
    ignored=st.booleans(),
    checked=st.booleans(),
    prepared=st.booleans(),
    trouble=st.sampled_from([None, NO_DRIVER]),
    fault=st.sampled_from([None, BROKEN]),
    clean=st.integers(0, CLEAN),
    incomplete=st.sampled_from(["", "labels contradict each other"]),
    matched=st.booleans(),
    wanted=st.sampled_from(POOLS),
    pool=st.sampled_from(POOLS),
    occupancy=st.sampled_from(get_args(Occupancy)),
)


@given(st.sampled_from(PHASES), facts_of_cards)
def test_the_lifecycle_terminates(phase, facts):
    """No path is longer than the number of phases plus the changes of pools."""
    steps = lifecycle.advance(phase, facts)

    assert len(steps) <= len(PHASES) + 2
    if steps:
        after = replace(facts, pool=steps[-1].pool)
        assert lifecycle.advance(steps[-1].end, after) == ()


@given(st.sampled_from(PHASES), facts_of_cards)
def test_steps_form_a_path(phase, facts):
    for step in lifecycle.advance(phase, facts):
        assert step.start == phase
        assert step.sentence
        phase = step.end


@given(st.sampled_from(PHASES), facts_of_cards)
def test_a_card_changes_its_pool_only_when_it_is_withdrawn(phase, facts):
    steps = lifecycle.advance(phase, facts)

    if steps and steps[-1].pool != facts.pool:
        assert facts.occupancy == "Withdrawn"
        assert steps[-1].pool in ("", facts.goal)


@given(st.sampled_from(PHASES), facts_of_cards)
def test_a_serving_card_has_a_pool(phase, facts):
    """The CRD validation requires this for Assigned."""
    steps = lifecycle.advance(phase, facts)
    rests, pool = (steps[-1].end, steps[-1].pool) if steps else (phase, facts.pool)

    if rests in ("Assigned", "Reserved", "InUse"):
        assert pool


@given(st.sampled_from(PHASES), facts_of_cards)
def test_a_faulted_card_is_isolated_but_a_used_one_not_for_its_node(phase, facts):
    steps = lifecycle.advance(phase, facts)
    rests = steps[-1].end if steps else phase

    if facts.fault is not None and not facts.set_aside:
        assert rests == "Faulted"
    if phase in ("Reserved", "InUse") and facts.held and facts.pool and facts.fault is None:
        assert rests in ("Reserved", "InUse")
    if phase in ("Ready", "PendingAssignment", "Assigned") and facts.held and facts.fault is None:
        assert rests != "Faulted"


@given(st.sampled_from(PHASES), facts_of_cards)
def test_a_card_that_is_set_aside_is_not_faulted_and_joins_no_pool(phase, facts):
    facts = replace(facts, ignored=True)
    steps = lifecycle.advance(phase, facts)

    assert (steps[-1].end if steps else phase) not in ("Faulted", "Ready", "PendingAssignment", "Validating")
    assert all(step.pool in ("", facts.pool) for step in steps)
    if facts.occupancy == "Withdrawn":
        assert (steps[-1].pool if steps else facts.pool) == ""


@given(st.sampled_from(PHASES), facts_of_cards)
def test_an_obstacle_keeps_a_card_out_of_pools(phase, facts):
    """Without an obstacle the card joins as soon as it is withdrawn."""
    free = replace(facts, pool="", wanted="team-a", occupancy="Withdrawn")
    told = lifecycle.obstacle(phase, free)
    steps = lifecycle.advance(phase, free)
    joined = bool(steps) and steps[-1].pool == "team-a"

    assert joined == (told == "")


PATHS = {
    "one step": (
        "Assigned",
        replace(FIT, pool="a", wanted="a", occupancy="Reserved"),
        "Assigned -> Reserved: is held for a pod",
    ),
    "several": (
        "Discovered",
        replace(FIT, wanted="a", occupancy="Withdrawn"),
        "Discovered -> Validating -> Ready -> PendingAssignment -> Assigned: serves the pool a",
    ),
    "none of the phases changes": (
        "Faulted",
        replace(FIT, fault=BROKEN, pool="a", occupancy="Withdrawn"),
        "Faulted: left the pool a",
    ),
}


@pytest.mark.parametrize(("phase", "facts", "note"), PATHS.values(), ids=PATHS)
def test_the_event_note_contains_the_path(phase, facts, note):
    assert lifecycle.event_note(lifecycle.advance(phase, facts)) == note


def test_braces_in_a_sentence_are_not_formatted():
    odd = replace(FIT, fault=CardTrouble("Odd", "the driver said {pool} and {0}"))

    assert lifecycle.advance("Ready", odd)[-1].sentence == "the driver said {pool} and {0}"
