"""The census: names are stable, nothing is lost, and no held GPUDevice is removed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import census
from croupier.core.cards.census import KnownDevice
from croupier.core.cards.inventory import DiscoveredCards
from croupier.core.model import card_name
from croupier.core.model.gpu_card import GpuCard

NODE = "node-1"


def at(slot: int) -> str:
    return f"0000:{slot:02x}:00.0"


def named(slot: int) -> str:
    return f"{NODE}-0000-{slot:02x}-00-0"


def numbered(index: int) -> str:
    return f"{NODE}-gpu-{index}"


def seen(*cards: GpuCard, is_complete: bool = True) -> DiscoveredCards:
    return DiscoveredCards(cards, is_complete)


def test_new_cards_are_named_by_pci_address_or_else_by_index():
    plan = census.plan(NODE, seen(GpuCard(0, at(3)), GpuCard(1)), [])

    assert [(one.id, one.card.index) for one in plan.cards] == [(named(3), 0), (numbered(1), 1)]
    assert plan.news == ()


def test_a_renumbered_or_replaced_card_keeps_its_name_and_gets_events():
    known = [KnownDevice(named(3), 0, "GPU-a")]
    plan = census.plan(NODE, seen(GpuCard(2, at(3), "GPU-b")), known)

    assert [one.id for one in plan.cards] == [named(3)]
    assert [one.reason for one in plan.news] == ["GPUCardReplaced", "GPUCardRenumbered"]
    assert "from GPU-a to GPU-b" in plan.news[0].note


def test_the_name_by_address_replaces_the_name_by_index():
    plan = census.plan(NODE, seen(GpuCard(0, at(3))), [KnownDevice(numbered(0), 0)])
    later = census.plan(
        NODE,
        seen(GpuCard(0, at(3))),
        [KnownDevice(named(3), 0), KnownDevice(numbered(0), 0, maybe_in_use=False)],
    )

    assert [(one.id, one.replaces) for one in plan.cards] == [(named(3), numbered(0))]
    assert (plan.removed, plan.vanished) == ((), ()), "a pod may hold a part of it"
    assert later.removed == (numbered(0),)
    assert later.cards[0].replaces == ""


def test_without_an_agent_a_card_is_matched_by_its_last_index():
    plan = census.plan(
        NODE, seen(GpuCard(0)), [KnownDevice(named(3), 0), KnownDevice(named(2), 0, vanished=True)]
    )

    assert [one.id for one in plan.cards] == [named(3)]


ENDINGS = {
    "is marked as vanished first": (KnownDevice(named(3), 0), True, "vanished", ["GPUCardVanished"]),
    "is marked only once": (KnownDevice(named(3), 0, vanished=True), True, "vanished", []),
    "stays while it is held": (
        KnownDevice(named(3), 0, vanished=True, removal_due=True),
        True,
        "vanished",
        [],
    ),
    "may come back soon": (KnownDevice(named(3), 0, vanished=True, maybe_in_use=False), True, "vanished", []),
    "is removed after the delay": (
        KnownDevice(named(3), 0, vanished=True, maybe_in_use=False, removal_due=True),
        True,
        "removed",
        ["GPUCardRemoved"],
    ),
    "is kept without a complete list": (KnownDevice(named(3), 0, maybe_in_use=False), False, "kept", []),
}


@pytest.mark.parametrize(("known", "complete", "ending", "events"), ENDINGS.values(), ids=ENDINGS)
def test_a_card_that_is_not_listed(known, complete, ending, events):
    plan = census.plan(NODE, seen(GpuCard(1, at(4)), is_complete=complete), [known])
    endings = {"vanished": plan.vanished, "removed": plan.removed, "kept": ()}

    assert [event.reason for event in plan.news] == events
    assert endings.pop(ending, ()) == (() if ending == "kept" else (known.id,))
    assert not any(endings.values())


def test_a_card_that_comes_back_gets_an_event():
    plan = census.plan(NODE, seen(GpuCard(0, at(3))), [KnownDevice(named(3), 0, vanished=True)])

    assert [one.reason for one in plan.news] == ["GPUCardReturned"]


def test_the_cards_of_a_node_with_a_long_name_are_named_by_hash():
    node = "n" * 249
    plan = census.plan(node, seen(GpuCard(0, at(3)), GpuCard(1, at(4))), [])

    assert {card.id for card in plan.cards} == {card_name.inventory_id(node, at(n)) for n in (3, 4)}
    assert all(len(card.id) <= card_name.NAME_LIMIT for card in plan.cards)


UUIDS = st.sampled_from(["", "a", "b"])
SITES = st.sampled_from([at(1), at(2), at(3)])
BY_AGENT = st.lists(st.builds(GpuCard, st.integers(0, 3), SITES, UUIDS), max_size=4)
BY_LABELS = st.lists(st.builds(GpuCard, st.integers(0, 3)), max_size=4, unique_by=lambda one: one.index)
CARDS = st.one_of(BY_AGENT, BY_LABELS).map(tuple)
KNOWN = st.lists(
    st.builds(
        KnownDevice,
        st.sampled_from([named(1), named(2), named(3), numbered(0), numbered(1)]),
        st.one_of(st.none(), st.integers(0, 3)),
        st.sampled_from(["", "a"]),
        maybe_in_use=st.booleans(),
        vanished=st.booleans(),
        removal_due=st.booleans(),
    ),
    unique_by=lambda one: one.id,
)


@given(CARDS, KNOWN, st.booleans())
def test_no_present_or_held_card_is_removed(cards, known, is_complete):
    plan = census.plan(NODE, seen(*cards, is_complete=is_complete), known)
    there = {one.id for one in plan.cards}
    by_name = {one.id: one for one in known}

    assert not there & {*plan.removed, *plan.vanished}
    assert len(there) == len(plan.cards)
    for name in plan.removed:
        assert not by_name[name].maybe_in_use
    if not is_complete:
        assert all(by_name[name].vanished for name in plan.vanished)


@given(CARDS, KNOWN, st.booleans())
def test_every_listed_card_keeps_its_name(cards, known, is_complete):
    first = census.plan(NODE, seen(*cards, is_complete=is_complete), known)
    after = [KnownDevice(one.id, one.card.index, one.card.uuid) for one in first.cards]  # once it is written
    second = census.plan(NODE, seen(*cards, is_complete=is_complete), after)

    assert [one.id for one in second.cards] == [one.id for one in first.cards]
    assert (second.vanished, second.removed, second.news) == ((), (), ())
