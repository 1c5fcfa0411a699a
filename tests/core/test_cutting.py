"""Partition steps lead from any state of a card to the wanted one, and no further."""

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import cutting, mig
from croupier.core.cards.cutting import Create, Cut, Destroy, Made, Mode, Step
from tests.core.layouts import placed

SPELLED = [
    "whole",
    "1g.10gb:7",
    "2g.20gb:3,1g.10gb:1",
    "3g.40gb:1,4g.40gb:1",
    "1g.20gb:4",
    "1g.10gb:2,2g.20gb:1,3g.40gb:1",
]
PLACED = [placed("H100", text) for text in SPELLED]


@st.composite
def states(draw):
    """Any part of a layout, with MIG mode on or off if there are no devices."""
    pieces = draw(
        st.sampled_from(PLACED).flatmap(
            lambda some: st.sets(st.sampled_from(some)) if some else st.just(set())
        )
    )
    made = tuple(
        Made(piece, f"MIG-{number}") for number, piece in enumerate(sorted(pieces, key=lambda p: p.start))
    )
    return Cut(bool(made) or draw(st.booleans()), made)


def done(now: Cut, step: Step) -> Cut:
    """Apply steps as strictly as a driver."""
    match step:
        case Mode(on=on):
            assert not now.made, "mode changes only without devices"
            return Cut(on, ())
        case Destroy(made=made):
            assert made in now.made
            return Cut(now.enabled, tuple(one for one in now.made if one != made))
        case Create(piece=piece):
            taken = {one for made in now.made for one in made.piece.slices}
            assert now.enabled
            assert not taken & set(piece.slices)
            return Cut(now.enabled, (*now.made, Made(piece, f"new {piece.id}")))


@given(states(), st.sampled_from(PLACED))
def test_steps_lead_from_any_state_to_the_wanted_one(now, wanted):
    for step in cutting.steps(now, wanted):
        now = done(now, step)

    assert cutting.is_cut(now, wanted)
    assert cutting.steps(now, wanted) == ()


@given(states(), states())
def test_steps_back_lead_to_the_exact_placements(now, before):
    for step in cutting.towards(now, enabled=before.enabled, wanted=before.pieces):
        now = done(now, step)

    assert (now.enabled, set(now.pieces)) == (before.enabled, set(before.pieces))


def test_the_same_devices_at_other_placements_are_kept():
    elsewhere = Cut(True, (Made(mig.Piece("3g.40gb", 0, 4), "MIG-0"),))

    assert cutting.steps(elsewhere, [mig.Piece("3g.40gb", 4, 4)]) == ()
