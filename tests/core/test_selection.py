"""A card must match every field of include and no field of exclude."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.pools import selection
from croupier.core.pools.selection import Filter, Labelled, Requirement, Selector, Traits


def h100(**fields: Any) -> Traits:
    plain: dict[str, Any] = {
        "id": "node-1-0000-65-00-0",
        "index": 2,
        "pci": "10de/2330",
        "labels": {"tier": "gold"},
        "product": "NVIDIA-H100-80GB-HBM3",
        "profiles": frozenset({"1g.10gb", "2g.20gb"}),
        "mig_capable": True,
    }
    return Traits(**{**plain, **fields})


BY_EVERY_FIELD = {
    "its id": (Filter(ids=frozenset({"node-1-0000-65-00-0"})), {"id": "node-1-0000-66-00-0"}),
    "its PCI device": (Filter(pci=frozenset({"10de/2330"})), {"pci": "10de/20b0"}),
    "a range of indexes": (Filter(indexes=((0, 1), (2, 2))), {"index": 3}),
    "an unknown index": (Filter(indexes=((0, 9),)), {"index": None}),
    "its labels": (Filter(labels={"tier": "gold"}), {"labels": {"tier": "silver"}}),
    "its product": (Filter(products=frozenset({"NVIDIA-H100-80GB-HBM3"})), {"product": "Tesla-T4"}),
    "all profiles named": (Filter(profiles=frozenset({"1g.10gb"})), {"profiles": frozenset({"2g.20gb"})}),
    "its MIG capability": (Filter(mig_capable=True), {"mig_capable": False}),
    "an unknown property": (Filter(mig_capable=True), {"mig_capable": None}),
}


@pytest.mark.parametrize(("asked", "other"), BY_EVERY_FIELD.values(), ids=BY_EVERY_FIELD)
def test_each_field_selects_cards(asked: Filter, other: dict[str, Any]) -> None:
    assert selection.selects(Selector(include=asked), h100())
    assert not selection.selects(Selector(include=asked), h100(**other))
    assert not selection.selects(Selector(exclude=asked), h100())
    assert selection.selects(Selector(exclude=asked), h100(**other))


def test_include_needs_all_of_its_fields_and_exclude_only_one() -> None:
    both = Filter(pci=frozenset({"10de/2330"}), products=frozenset({"Tesla-T4"}))

    assert not selection.selects(Selector(include=both), h100())
    assert not selection.selects(Selector(exclude=both), h100())


def test_exclusion_overrides_inclusion() -> None:
    gold = Filter(labels={"tier": "gold"})

    assert not selection.selects(Selector(include=gold, exclude=gold), h100())


LABELS = {
    "no requirement": (Labelled(), True),
    "an equal label": (Labelled({"zone": "a"}), True),
    "another value": (Labelled({"zone": "b"}), False),
    "a label it lacks": (Labelled({"rack": "1"}), False),
    "In": (Labelled({}, (Requirement("zone", "In", ("a", "b")),)), True),
    "In, of a label it lacks": (Labelled({}, (Requirement("rack", "In", ("1",)),)), False),
    "NotIn": (Labelled({}, (Requirement("zone", "NotIn", ("a",)),)), False),
    "NotIn, of a label it lacks": (Labelled({}, (Requirement("rack", "NotIn", ("1",)),)), True),
    "Exists": (Labelled({}, (Requirement("zone", "Exists"),)), True),
    "DoesNotExist": (Labelled({}, (Requirement("zone", "DoesNotExist"),)), False),
    "several requirements": (Labelled({"zone": "a"}, (Requirement("rack", "Exists"),)), False),
    "an unknown operator": (Labelled({}, (Requirement("zone", "Gt", ("0",)),)), False),
}


@pytest.mark.parametrize(("selector", "matches"), LABELS.values(), ids=LABELS)
def test_labels(selector: Labelled, matches: bool) -> None:
    assert selection.labelled({"zone": "a"}, selector) is matches


def test_a_range_has_a_dash_and_includes_both_ends() -> None:
    assert selection.span("0-1") == (0, 1)
    assert selection.span("3") == (3, 3)


cards = st.builds(
    Traits,
    id=st.sampled_from(["a", "b"]),
    index=st.none() | st.integers(0, 3),
    pci=st.sampled_from(["", "10de/2330", "10de/20b0"]),
    product=st.sampled_from(["", "H100", "T4"]),
    profiles=st.frozensets(st.sampled_from(["1g", "2g"])),
    mig_capable=st.sampled_from([None, True, False]),
)
filters = st.builds(
    Filter,
    ids=st.frozensets(st.sampled_from(["a", "b"])),
    pci=st.frozensets(st.sampled_from(["10de/2330", "10de/20b0"])),
    indexes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=2).map(tuple),
    products=st.frozensets(st.sampled_from(["H100", "T4"])),
    profiles=st.frozensets(st.sampled_from(["1g", "2g"])),
    mig_capable=st.sampled_from([None, True, False]),
)


@given(cards, filters, filters)
def test_excluding_more_never_selects_more(card: Traits, include: Filter, exclude: Filter) -> None:
    if selection.selects(Selector(include, exclude), card):
        assert selection.selects(Selector(include), card)
        assert selection.selects(Selector(exclude=exclude), card)
        assert not selection.selects(Selector(include, include), card) or include == Filter()
