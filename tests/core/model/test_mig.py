"""A layout is possible exactly if its devices can be placed."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import catalogue
from croupier.core.model import mig
from croupier.core.model.mig import Layout, MigPlacement, MigProfile
from croupier.core.model.refusal import Refusal
from croupier.core.pods import request_parser
from tests.core.mig_builders import layout, placements, profiles

CUT = [model for model in catalogue.MODELS if model.kinds]


POSSIBLE = {
    "seven of the smallest": ("H100", "1g.10gb:7"),
    "all three sizes of the example in the documentation": ("SIM-70GB", "2g.20gb:2,3g.30gb:1"),
    "three and four slices": ("H100", "3g.40gb:1,4g.40gb:1"),
    "balanced": ("H100", "1g.10gb:2,2g.20gb:1,3g.40gb:1"),
    "double memory four times": ("H100", "1g.20gb:4"),
    "three of two slices and one of one": ("H100", "1g.10gb:1,2g.20gb:3"),
    "media extensions once, with six others": ("A100-40GB", "1g.5gb:6,1g.5gb+me:1"),
    "a quarter card": ("A30", "1g.6gb:2,2g.12gb:1"),
    "not partitioned": ("T4", "whole"),
}

IMPOSSIBLE = {
    "a model without MIG": ("L40S", "1g.10gb:1", "this card model does not support MIG"),
    "a profile of another model": ("A100-40GB", "1g.20gb:1", "no MIG profile"),
    "media extensions twice": ("H100", "1g.10gb+me:2", "can have at most 1 of 1g.10gb+me, not 2"),
    "eight of seven": ("H100", "1g.10gb:8", "can have at most 7 of 1g.10gb, not 8"),
    "too many compute slices": ("H100", "3g.40gb:2,2g.20gb:1", "needs 8 compute slices; the card has 7"),
    "too many memory slices": ("H100", "1g.20gb:3,3g.40gb:1", "needs 10 memory slices; the card has 8"),
    "fits by number, not by placement": (
        "H100",
        "1g.10gb:1,1g.20gb:4",
        "needs 9 memory slices",
    ),
    "no valid start": ("H100", "1g.10gb:1,3g.40gb:2", "needs 9 memory slices"),
}


@pytest.mark.parametrize(("model", "text"), POSSIBLE.values(), ids=POSSIBLE)
def test_possible_layouts_are_placed(model, text):
    assert mig.layout_of(piece.profile for piece in placements(model, text)) == layout(text)
    assert mig.layout_text(layout(text)) == text


def test_the_documented_example_has_the_placements_of_the_ledger():
    pieces = placements("SIM-70GB", "2g.20gb:2,3g.30gb:1")

    assert [piece.id for piece in pieces] == ["2g.20gb-0", "2g.20gb-2", "3g.30gb-4"]


@pytest.mark.parametrize(("model", "text", "sentence"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_layouts_are_refused_with_the_reason(model, text, sentence):
    refused = mig.place(profiles(model), layout(text))

    assert isinstance(refused, Refusal)
    assert sentence in str(refused)


def test_enough_slices_at_wrong_starts_are_refused_with_the_starts():
    """Memory slices 3 and 7 are free, so two small devices would fit by number."""
    odd = (
        MigProfile("1g.10gb", 1, (0, 1), 1, most=4),
        MigProfile("3g.30gb", 3, (0, 4), 3, most=2),
        MigProfile("7g.70gb", 7, (0,), 7),
    )

    refused = mig.place(odd, (("3g.30gb", 2), ("1g.10gb", 1)))

    assert str(refused) == (
        "1g.10gb:1,3g.30gb:2 does not fit on one card: 1g.10gb takes 1 memory slice from 0 or 1; "
        "3g.30gb takes 3 memory slices from 0 or 4"
    )


def test_a_similar_profile_is_suggested():
    refused = mig.place(profiles("H100"), (("3g.30gb", 1),))

    assert "did you mean 3g.40gb?" in str(refused)


FILLED = {
    ("H100", "1g.10gb"): 7,
    ("H100", "1g.20gb"): 4,
    ("H100", "3g.40gb"): 2,
    ("H100", "1g.10gb+me"): 1,
    ("SIM-70GB", "1g.10gb"): 7,
    ("SIM-70GB", "3g.30gb"): 2,
    ("A30", "2g.12gb"): 2,
    ("T4", "1g.10gb"): 0,
    ("H100", "no such"): 0,
}


@pytest.mark.parametrize(("which", "number"), FILLED.items())
def test_fill_a_card_with_one_profile(which, number):
    model, profile = which

    assert mig.max_devices(profiles(model), profile) == number


def fits_by_force(kinds: tuple[MigProfile, ...], layout: Layout) -> bool:
    """Try every combination of starts: slow, but obviously correct."""
    by_name = {kind.name: kind for kind in kinds}
    if any(number > by_name[profile].most for profile, number in layout):
        return False
    wanted = [by_name[profile] for profile, number in layout for _ in range(number)]
    if sum(kind.compute_slices for kind in wanted) > max(kind.compute_slices for kind in kinds):
        return False
    choices = [combinations(by_name[profile].starts, number) for profile, number in layout]
    return any(_apart(by_name, layout, chosen) for chosen in product(*choices))


def _apart(by_name: dict[str, MigProfile], layout: Layout, chosen: tuple[tuple[int, ...], ...]) -> bool:
    taken = [
        slice_
        for (profile, _), starts in zip(layout, chosen, strict=True)
        for start in starts
        for slice_ in range(start, start + by_name[profile].memory_slices)
    ]
    return len(taken) == len(set(taken))


@st.composite
def made_up_kinds(draw):
    """Fictitious geometries, so that the test does not depend on known models."""
    names = [f"{compute}g.{10 * memory}gb" for compute in range(1, 5) for memory in range(1, 5)]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    made = []
    for name in chosen:
        compute, memory = int(name[0]), int(name[3])
        starts = draw(st.sets(st.integers(0, 8 - memory), min_size=1))
        most = draw(st.integers(1, 8))
        made.append(MigProfile(name, memory, tuple(sorted(starts)), compute, most=most))
    return tuple(made)


@st.composite
def wishes(draw):
    known = draw(st.one_of(st.sampled_from([model.kinds for model in CUT]), made_up_kinds()))
    counts = draw(
        st.dictionaries(st.sampled_from([kind.name for kind in known]), st.integers(1, 4), min_size=1)
    )
    return known, mig.canonical(counts.items())


@given(wishes())
def test_placement_equals_brute_force(wish):
    known, layout = wish
    found = mig.place(known, layout)

    assert isinstance(found, tuple) == fits_by_force(known, layout)
    if isinstance(found, tuple):
        by_name = {kind.name: kind for kind in known}
        assert mig.layout_of(piece.profile for piece in found) == layout
        assert all(piece.start in by_name[piece.profile].starts for piece in found)
        assert all(piece.size == by_name[piece.profile].memory_slices for piece in found)
        slices = [one for piece in found for one in piece.slices]
        assert len(slices) == len(set(slices))
        assert len({piece.id for piece in found}) == len(found)


@given(wishes())
def test_layout_text_and_parse_are_inverse(wish):
    _, layout = wish
    pieces = sum(number for _, number in layout)

    read = mig.parse(mig.layout_text(layout))

    assert read == layout if pieces <= mig.MAX_DEVICES else isinstance(read, Refusal)


@pytest.mark.parametrize(
    "text", ["", "1g.10gb", "1g.10gb:0", "1g.10gb:-1", "1g.10gb:1,", "half:2", "Whole", "1g.10gb:99"]
)
def test_invalid_layout_texts_are_refused(text):
    assert "is not a MIG layout" in str(mig.parse(text))


def test_resource_names_write_extras_with_a_dot():
    assert request_parser.mig_resource("1g.10gb+me") == "nvidia.com/mig-1g.10gb.me"
    assert MigPlacement("2g.20gb", 4, 2).id == "2g.20gb-4"
