"""Partition steps lead from any state of a card to the wanted one, and no further."""

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import partitioning
from croupier.core.cards.partitioning import (
    CreateDevice,
    DestroyDevice,
    MigState,
    PartitionStep,
    SetMigMode,
)
from croupier.core.model import mig
from croupier.core.model.mig import MigDevice, MigPlacement
from tests.core.mig_builders import placements

SPELLED = [
    "whole",
    "1g.10gb:7",
    "2g.20gb:3,1g.10gb:1",
    "3g.40gb:1,4g.40gb:1",
    "1g.20gb:4",
    "1g.10gb:2,2g.20gb:1,3g.40gb:1",
]
PLACED = [placements("H100", text) for text in SPELLED]


def device(placement: MigPlacement, uuid: str) -> MigDevice:
    return MigDevice(placement.profile, placement.start, placement.size, uuid)


@st.composite
def states(draw):
    """Any part of a layout, with MIG mode on or off if there are no devices."""
    pieces = draw(
        st.sampled_from(PLACED).flatmap(
            lambda some: st.sets(st.sampled_from(some)) if some else st.just(set())
        )
    )
    made = tuple(
        device(piece, f"MIG-{number}") for number, piece in enumerate(sorted(pieces, key=lambda p: p.start))
    )
    return MigState(bool(made) or draw(st.booleans()), made)


def done(now: MigState, step: PartitionStep) -> MigState:
    """Apply steps as strictly as a driver."""
    match step:
        case SetMigMode(on=on):
            assert not now.made, "mode changes only without devices"
            return MigState(on, ())
        case DestroyDevice(made=made):
            assert made in now.made
            return MigState(now.enabled, tuple(one for one in now.made if one != made))
        case CreateDevice(placement=piece):
            taken = {one for made in now.made for one in made.placement.slices}
            assert now.enabled
            assert not taken & set(piece.slices)
            return MigState(now.enabled, (*now.made, device(piece, f"new {piece.id}")))


@given(states(), st.sampled_from(PLACED))
def test_steps_lead_from_any_state_to_the_wanted_one(now, wanted):
    for step in partitioning.steps(now, wanted):
        now = done(now, step)

    assert partitioning.is_partitioned(now, wanted)
    assert partitioning.steps(now, wanted) == ()


@given(states(), states())
def test_steps_back_lead_to_the_exact_placements(now, before):
    for step in partitioning.steps_to(now, enabled=before.enabled, wanted=before.placements):
        now = done(now, step)

    assert (now.enabled, set(now.placements)) == (before.enabled, set(before.placements))


def test_the_same_devices_at_other_placements_are_kept():
    elsewhere = MigState(True, (MigDevice("3g.40gb", 0, 4, "MIG-0"),))

    assert partitioning.steps(elsewhere, [mig.MigPlacement("3g.40gb", 4, 4)]) == ()
