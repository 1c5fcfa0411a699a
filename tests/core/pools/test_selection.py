"""A card must match every field of include and no field of exclude."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.pods.scheduler_filters import LabelRequirement
from croupier.core.pools import selection
from croupier.core.pools.selection import CardFilter, CardSelector, CardTraits, LabelMatch


def h100(**fields: Any) -> CardTraits:
    plain: dict[str, Any] = {
        "id": "node-1-0000-65-00-0",
        "index": 2,
        "pci": "10de/2330",
        "labels": {"tier": "gold"},
        "product": "NVIDIA-H100-80GB-HBM3",
        "profiles": frozenset({"1g.10gb", "2g.20gb"}),
        "mig_capable": True,
    }
    return CardTraits(**{**plain, **fields})


BY_EVERY_FIELD = {
    "its id": (CardFilter(ids=frozenset({"node-1-0000-65-00-0"})), {"id": "node-1-0000-66-00-0"}),
    "its PCI device": (CardFilter(pci=frozenset({"10de/2330"})), {"pci": "10de/20b0"}),
    "a range of indexes": (CardFilter(indexes=((0, 1), (2, 2))), {"index": 3}),
    "an unknown index": (CardFilter(indexes=((0, 9),)), {"index": None}),
    "its labels": (CardFilter(labels={"tier": "gold"}), {"labels": {"tier": "silver"}}),
    "its product": (CardFilter(products=frozenset({"NVIDIA-H100-80GB-HBM3"})), {"product": "Tesla-T4"}),
    "all profiles named": (CardFilter(profiles=frozenset({"1g.10gb"})), {"profiles": frozenset({"2g.20gb"})}),
    "its MIG capability": (CardFilter(mig_capable=True), {"mig_capable": False}),
    "an unknown property": (CardFilter(mig_capable=True), {"mig_capable": None}),
}


@pytest.mark.parametrize(("asked", "other"), BY_EVERY_FIELD.values(), ids=BY_EVERY_FIELD)
def test_each_field_selects_cards(asked: CardFilter, other: dict[str, Any]) -> None:
    assert selection.selects(CardSelector(include=asked), h100())
    assert not selection.selects(CardSelector(include=asked), h100(**other))
    assert not selection.selects(CardSelector(exclude=asked), h100())
    assert selection.selects(CardSelector(exclude=asked), h100(**other))


def test_include_needs_all_of_its_fields_and_exclude_only_one() -> None:
    both = CardFilter(pci=frozenset({"10de/2330"}), products=frozenset({"Tesla-T4"}))

    assert not selection.selects(CardSelector(include=both), h100())
    assert not selection.selects(CardSelector(exclude=both), h100())


def test_exclusion_overrides_inclusion() -> None:
    gold = CardFilter(labels={"tier": "gold"})

    assert not selection.selects(CardSelector(include=gold, exclude=gold), h100())


LABELS = {
    "no requirement": (LabelMatch(), True),
    "an equal label": (LabelMatch({"zone": "a"}), True),
    "another value": (LabelMatch({"zone": "b"}), False),
    "a label it lacks": (LabelMatch({"rack": "1"}), False),
    "In": (LabelMatch({}, (LabelRequirement("zone", "In", ("a", "b")),)), True),
    "In, of a label it lacks": (LabelMatch({}, (LabelRequirement("rack", "In", ("1",)),)), False),
    "NotIn": (LabelMatch({}, (LabelRequirement("zone", "NotIn", ("a",)),)), False),
    "NotIn, of a label it lacks": (LabelMatch({}, (LabelRequirement("rack", "NotIn", ("1",)),)), True),
    "Exists": (LabelMatch({}, (LabelRequirement("zone", "Exists"),)), True),
    "DoesNotExist": (LabelMatch({}, (LabelRequirement("zone", "DoesNotExist"),)), False),
    "several requirements": (LabelMatch({"zone": "a"}, (LabelRequirement("rack", "Exists"),)), False),
    "an unknown operator": (LabelMatch({}, (LabelRequirement("zone", "Gt", ("0",)),)), False),
}


@pytest.mark.parametrize(("selector", "matches"), LABELS.values(), ids=LABELS)
def test_labels(selector: LabelMatch, matches: bool) -> None:
    assert selection.matches_labels({"zone": "a"}, selector) is matches


def test_a_range_has_a_dash_and_includes_both_ends() -> None:
    assert selection.parse_range("0-1") == (0, 1)
    assert selection.parse_range("3") == (3, 3)


cards = st.builds(
    CardTraits,
    id=st.sampled_from(["a", "b"]),
    index=st.none() | st.integers(0, 3),
    pci=st.sampled_from(["", "10de/2330", "10de/20b0"]),
    product=st.sampled_from(["", "H100", "T4"]),
    profiles=st.frozensets(st.sampled_from(["1g", "2g"])),
    mig_capable=st.sampled_from([None, True, False]),
)
filters = st.builds(
    CardFilter,
    ids=st.frozensets(st.sampled_from(["a", "b"])),
    pci=st.frozensets(st.sampled_from(["10de/2330", "10de/20b0"])),
    indexes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=2).map(tuple),
    products=st.frozensets(st.sampled_from(["H100", "T4"])),
    profiles=st.frozensets(st.sampled_from(["1g", "2g"])),
    mig_capable=st.sampled_from([None, True, False]),
)


@given(cards, filters, filters)
def test_excluding_more_never_selects_more(
    card: CardTraits, include: CardFilter, exclude: CardFilter
) -> None:
    if selection.selects(CardSelector(include, exclude), card):
        assert selection.selects(CardSelector(include), card)
        assert selection.selects(CardSelector(exclude=exclude), card)
        assert not selection.selects(CardSelector(include, include), card) or include == CardFilter()
