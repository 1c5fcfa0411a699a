"""The cards of a node, from its inventory or from the resources of its device plugin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.claims import rebuild
from croupier.core.ledger import ledger, reported_cards, sync_cards
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.ledger.reported_cards import NodeCardReport, ReportedCard, ReportedPool
from croupier.core.model.card import MAX_CARDS, CardGrant, LedgerCard, MigSlot
from croupier.core.model.sharing import Sharing
from croupier.core.model.withheld import Withheld, WithheldState
from tests.core import node_records
from tests.core.node_records import DRAINED, NODE, gpu, half_of, pci, plugin_report

RESTING = Withheld("Changing", "its pool is in Maintenance")
POOLS = {
    "shared": ReportedPool(Sharing("MPS")),
    "alone": ReportedPool(Sharing("Exclusive")),
    "turns": ReportedPool(Sharing("TimeSlice", slices=4)),
    "small": ReportedPool(Sharing("MIG", profile="1g.10gb")),
    "mixed": ReportedPool(Sharing("MIG", layout=(("2g.20gb", 2), ("3g.40gb", 1)))),
    "wrong": ReportedPool(Sharing("MIG", layout=(("7g.80gb", 2),))),
    "resting": ReportedPool(Sharing("MPS"), RESTING),
}
A100 = {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}


def inventory(*devices: ReportedCard) -> NodeCardReport:
    return NodeCardReport(NODE, devices=devices, pools=POOLS)


def device(index: int | None = 0, **known) -> ReportedCard:
    return ReportedCard(pci(index or 0), index, **{"fits": A100, **known})


def slots(card: LedgerCard) -> list[tuple[str, int, int]]:
    return [(slot.profile, slot.start, slot.size) for slot in card.slots]


def closed(state: WithheldState, reason: str, pool: str = "") -> LedgerCard:
    """Card 0, without new holders."""
    return LedgerCard(pci(0), 0, pool=pool, healthy=False, withheld=Withheld(state, reason))


SHARED = {
    "in no pool: by percent": (device(), LedgerCard(pci(0), 0)),
    "MPS: by percent in the pool": (device(pool="shared"), LedgerCard(pci(0), 0, pool="shared")),
    "exclusive": (device(pool="alone"), LedgerCard(pci(0), 0, "Exclusive", pool="alone")),
    "time-sliced": (device(pool="turns"), LedgerCard(pci(0), 0, "TimeSlice", capacity=4, pool="turns")),
    "of an unknown pool: unhealthy": (
        device(pool="?"),
        closed("Unhealthy", "its pool ? does not exist", pool="?"),
    ),
    "faulted: unhealthy": (device(faulted=True), closed("Unhealthy", "it is faulted")),
    "drained: with the reason": (device(withheld=DRAINED), closed("Drained", "swap the fan")),
    "retired: listed, so that every reader knows why": (
        device(withheld=Withheld("Retired", "worn out")),
        closed("Retired", "worn out"),
    ),
    "drained and faulted: a person comes first": (
        device(withheld=DRAINED, faulted=True),
        closed("Drained", "swap the fan"),
    ),
    "changing and faulted: the fault comes first": (
        device(withheld=Withheld("Changing", "it is joining pool a"), faulted=True),
        closed("Unhealthy", "it is faulted"),
    ),
    "drained in a closed pool: a person comes first": (
        device(pool="resting", withheld=DRAINED),
        closed("Drained", "swap the fan", pool="resting"),
    ),
    "in a closed pool": (device(pool="resting"), closed("Changing", RESTING.reason, pool="resting")),
}


@pytest.mark.parametrize(("reported", "card"), SHARED.values(), ids=SHARED)
def test_the_mode_of_an_inventory_card(reported, card):
    assert reported_cards.from_report(inventory(reported)).cards == (card,)


def test_a_pool_partitions_its_cards():
    small, mixed, wrong, unknown = reported_cards.from_report(
        inventory(
            device(0, pool="small"),
            device(1, pool="mixed"),
            device(2, pool="wrong"),
            device(3, pool="small", fits={}),
        )
    ).cards

    assert slots(small) == [("1g.10gb", start, 1) for start in range(7)]
    assert slots(mixed) == [("3g.40gb", 0, 4), ("2g.20gb", 4, 2), ("2g.20gb", 6, 2)]
    assert [(card.slots, card.healthy) for card in (wrong, unknown)] == [((), False), ((), False)]


def test_the_simulated_card_of_70_gb_is_partitioned_as_in_the_examples():
    pool = ReportedPool(Sharing("MIG", layout=(("2g.20gb", 2), ("3g.30gb", 1))))
    fits = {"1g.10gb": 7, "2g.20gb": 3, "3g.30gb": 2}
    (card,) = reported_cards.from_report(
        NodeCardReport(NODE, devices=(device(pool="p", fits=fits),), pools={"p": pool})
    ).cards

    assert slots(card) == [("3g.30gb", 0, 3), ("2g.20gb", 4, 2), ("2g.20gb", 6, 2)]


def cut(*profiles: str) -> tuple[MigSlot, ...]:
    """Adjacent slots of one memory slice each."""
    return tuple(MigSlot(f"{profile}-{start}", profile, start, 1) for start, profile in enumerate(profiles))


SEVEN = cut(*["1g.10gb"] * 7)
TOLD = {
    "partitioned, in no pool": (device(cut=SEVEN[:2]), "MIG", 2, True),
    "whole, in no pool": (device(cut=()), "Percent", 0, True),
    "partitioned as the pool requires": (device(pool="small", cut=SEVEN), "MIG", 7, True),
    "unhealthy until it is partitioned": (device(pool="small", cut=()), "MIG", 0, False),
    "unhealthy with another layout": (device(pool="small", cut=SEVEN[:6]), "MIG", 6, False),
    "with its own layout, if it is unknown how many devices fit": (
        device(pool="small", fits={}, cut=SEVEN[:3]),
        "MIG",
        3,
        True,
    ),
    "not whole while it is partitioned": (device(pool="shared", cut=SEVEN), "Percent", 0, False),
    "unhealthy while it is withheld": (device(cut=SEVEN, withheld=DRAINED), "MIG", 7, False),
    "unhealthy with overlapping devices": (
        device(cut=(*SEVEN, MigSlot("x", "3g.40gb", 5, 4))),
        "MIG",
        0,
        False,
    ),
    "unhealthy with a device beyond its end": (device(cut=(MigSlot("x", "3g.40gb", 6, 4),)), "MIG", 0, False),
    "with the new sharing while it is ahead of its pool": (
        device(pool="small", cut=cut("2g.20gb"), ahead=Sharing("MIG", layout=(("2g.20gb", 1),))),
        "MIG",
        1,
        True,
    ),
    "unhealthy with the old layout while it is ahead of its pool": (
        device(pool="small", cut=SEVEN, ahead=Sharing("MIG", layout=(("2g.20gb", 1),))),
        "MIG",
        7,
        False,
    ),
    "unhealthy while its pool is in maintenance": (device(pool="resting"), "Percent", 0, False),
}


@pytest.mark.parametrize(("reported", "mode", "slots", "healthy"), TOLD.values(), ids=TOLD)
def test_the_mode_of_a_card_with_reported_partitioning(reported, mode, slots, healthy):
    (card,) = reported_cards.from_report(NodeCardReport(NODE, devices=(reported,), pools=POOLS)).cards

    assert (card.mode, len(card.slots), card.healthy) == (mode, slots, healthy)


def test_all_cards_of_a_node_with_a_silent_agent_are_unhealthy():
    cards = reported_cards.from_report(
        NodeCardReport(NODE, devices=(device(0), device(1)), silent=True)
    ).cards

    assert [card.healthy for card in cards] == [False, False]


def test_a_card_with_two_names_is_one_card():
    by_number = ReportedCard(gpu(0), 0)
    cards = reported_cards.from_report(inventory(by_number, device(0), ReportedCard(gpu(1), 1))).cards

    assert [card.id for card in cards] == [pci(0), gpu(1)]


def test_with_a_partitioning_plugin_only_the_offered_cards_are_healthy():
    devices = tuple(ReportedCard(gpu(index), index) for index in range(4))
    offered = {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 7}
    cards = reported_cards.from_report(
        NodeCardReport(NODE, devices=devices, allocatable=offered), half_of(gpu(2))
    ).cards

    whole = [card.id for card in cards if card.mode == "Percent" and card.healthy]
    assert whole == [gpu(2)], "the card that is in use"
    assert sum(len(card.slots) for card in cards) == 7
    assert len({card.index for card in cards}) == len(cards)


def test_a_withheld_card_keeps_its_holders_and_gets_no_new_ones():
    before = held(inventory(device(0)), *half_of(pci(0)))
    after = sync_cards.sync(before, inventory(device(0, withheld=DRAINED)))

    (card,) = after.cards
    assert (card.healthy, card.used, card.free) == (False, 50, 0)
    assert card.epoch > before.cards[0].epoch


def test_an_unmanaged_card_is_left_out_but_counts_as_inventory():
    report = NodeCardReport(NODE, devices=(device(unmanaged=True),), allocatable={"nvidia.com/gpu": 8})

    assert reported_cards.from_report(report).cards == ()


def test_cards_without_a_known_index_get_a_free_one():
    cards = reported_cards.from_report(
        inventory(ReportedCard("x"), ReportedCard("y", 0), ReportedCard("z", 999))
    ).cards

    assert [(card.id, card.index) for card in cards] == [("y", 0), ("x", 1), ("z", 2)]


def test_a_node_without_inventory_has_indexed_cards_and_placeholders_for_mig_devices():
    cards = reported_cards.from_report(plugin_report(2, **{"1g.10gb": 10, "2g.20gb.me": 1})).cards

    assert [(card.id, card.index, card.mode, len(card.slots)) for card in cards] == [
        (gpu(0), 0, "Percent", 0),
        (gpu(1), 1, "Percent", 0),
        (f"{NODE}-mig-1g.10gb-0", 2, "MIG", 8),
        (f"{NODE}-mig-1g.10gb-1", 3, "MIG", 2),
        (f"{NODE}-mig-2g.20gb-me-0", 4, "MIG", 1),
    ]
    assert ledger.invariant_violations(Ledger(NODE, cards)) == []


def test_the_node_of_the_worked_example():
    cards = reported_cards.from_report(plugin_report(4, **{"1g.10gb": 28, "2g.20gb": 12})).cards

    free = [slot.profile for card in cards for slot in card.free_slots()]
    assert (free.count("1g.10gb"), free.count("2g.20gb")) == (28, 12)
    assert sum(card.mode == "Percent" for card in cards) == 4


def test_too_many_cards_are_reported_as_a_problem():
    counted = reported_cards.from_report(plugin_report(10**9))

    assert len(counted.cards) == 32
    assert counted.troubles == (f"node {NODE} reports more than 32 cards; the others are ignored",)


def test_a_retired_card_takes_no_place_of_another():
    worn = Withheld("Retired", "worn out")
    report = inventory(*(device(index, withheld=worn if index < 2 else None) for index in range(34)))

    assert [card.index for card in reported_cards.from_report(report).cards] == list(range(2, 34))
    assert [card.index for card in sync_cards.sync(Ledger(NODE), report).cards] == list(range(2, 34))


def test_the_cards_of_a_node_with_a_long_name_are_counted():
    node = "n" * 250
    offered = {"nvidia.com/gpu": 2, "nvidia.com/mig-1g.10gb": 9}
    counted = reported_cards.from_report(NodeCardReport(node, allocatable=offered))

    whole, slices = counted.cards[:2], counted.cards[2:]
    assert {card.id: card.index for card in whole}.items() <= reported_cards.indexed_names(node).items()
    assert all(reported_cards.is_placeholder(node, card.id) for card in slices)
    assert not any(reported_cards.is_placeholder(node, card.id) for card in whole)
    assert sum(len(card.slots) for card in slices) == 9
    assert counted.troubles == ()


def test_the_cards_of_a_deleted_node_are_unhealthy():
    gone = NodeCardReport(NODE, present=False, devices=(device(),))

    assert [card.healthy for card in reported_cards.from_report(gone).cards] == [False]


def held(report: NodeCardReport, *parts: CardGrant) -> Ledger:
    given = ledger.give(Ledger(NODE, node_records.cards_of(report)), "ns/a/1", parts, HoldTerms(bound=True))
    assert isinstance(given, Ledger)
    return given


def test_another_reason_alone_is_no_new_epoch():
    """The epoch tells that a decision about the card is outdated; a text decides nothing."""
    drained = sync_cards.sync(Ledger(NODE), inventory(device(0, withheld=DRAINED)))
    renamed = sync_cards.sync(drained, inventory(device(0, withheld=Withheld("Drained", "new fan"))))
    opened = sync_cards.sync(renamed, inventory(device(0)))

    assert renamed.cards[0].withheld == Withheld("Drained", "new fan")
    assert renamed.cards[0].epoch == drained.cards[0].epoch < opened.cards[0].epoch
    assert (opened.cards[0].healthy, opened.cards[0].withheld) == (True, None)


def test_a_withdrawn_card_is_one_without_holders():
    fewer = sync_cards.sync(held(plugin_report(4), *half_of(gpu(3))), plugin_report(3))

    assert [(card.id, card.healthy) for card in fewer.cards] == [
        (gpu(0), True),
        (gpu(1), True),
        (gpu(3), True),
    ]


def test_a_held_card_stays_unhealthy_when_it_is_withdrawn():
    none = sync_cards.sync(held(plugin_report(2), *half_of(gpu(1))), plugin_report(0))

    assert [(card.id, card.healthy, card.used) for card in none.cards] == [(gpu(1), False, 50)]


def test_withdrawn_mig_devices_are_those_without_holders():
    before = held(
        plugin_report(0, **{"1g.10gb": 10}), CardGrant(f"{NODE}-mig-1g.10gb-1", slots=("1g.10gb-1",))
    )
    after = sync_cards.sync(before, plugin_report(0, **{"1g.10gb": 1}))

    assert after.grant("ns/a/1") == before.grant("ns/a/1")
    assert sum(len(card.slots) for card in after.cards) == 1


def test_holders_follow_their_cards_to_inventory_names_and_back():
    before = held(plugin_report(2), *half_of(gpu(0), gpu(1)))
    named = sync_cards.sync(before, inventory(device(0), device(1)))
    back = sync_cards.sync(named, plugin_report(2))

    assert named.grant("ns/a/1") == half_of(pci(0), pci(1))
    assert len(named.cards) == 2
    assert back.grant("ns/a/1") == before.grant("ns/a/1")


def test_holders_of_placeholder_devices_move_to_real_ones():
    before = held(
        plugin_report(0, **{"1g.10gb": 7}),
        CardGrant(f"{NODE}-mig-1g.10gb-0", slots=("1g.10gb-2", "1g.10gb-5")),
    )
    after = sync_cards.sync(before, inventory(device(pool="small")))

    assert [card.id for card in after.cards] == [pci(0)]
    assert after.grant("ns/a/1") == (CardGrant(pci(0), slots=("1g.10gb-0", "1g.10gb-1")),)


def test_holders_without_a_real_device_stay_on_the_placeholder():
    placeholder = f"{NODE}-mig-1g.10gb-0"
    before = held(
        plugin_report(0, **{"1g.10gb": 2}), CardGrant(placeholder, slots=("1g.10gb-0", "1g.10gb-1"))
    )
    after = sync_cards.sync(before, inventory(device(cut=SEVEN[:1])))

    assert {card.id: [slot.holder for slot in card.slots] for card in after.cards} == {
        pci(0): ["ns/a/1"],
        placeholder: ["", "ns/a/1"],
    }


@given(node_records.reports(), node_records.reports(), st.data())
def test_no_report_loses_a_holder_or_overcommits(first, second, data):
    before = node_records.rebuilt(*data.draw(node_records.placed_pods(first)), report=first)
    after = sync_cards.sync(before, second)

    assert ledger.invariant_violations(after) == []
    assert after.holders() == before.holders()
    assert sync_cards.sync(after, second) == after
    reported = len(reported_cards.from_report(second, sync_cards.in_use(after)).cards)
    assert sum(card.healthy for card in after.cards) <= reported


@given(node_records.reports())
def test_counting_is_deterministic(report):
    once = reported_cards.from_report(report)

    assert ledger.invariant_violations(Ledger(NODE, once.cards)) == []
    assert len(once.cards) <= MAX_CARDS
    assert reported_cards.from_report(report) == once
    assert rebuild.rebuild(report, (), (), node_records.NOON).ledger.cards == once.cards


def test_cards_of_bound_pods_are_kept_before_those_that_wait():
    """A plugin that reports fewer cards only counts them: what waits for a pod has less than before."""
    full = Ledger(NODE, reported_cards.from_report(plugin_report(3)).cards)
    for holder, card, terms in (
        ("ns/waits", gpu(0), HoldTerms(reservation="mine")),
        ("ns/binds/1", gpu(1), HoldTerms()),
        ("ns/runs/1", gpu(2), HoldTerms(bound=True)),
    ):
        given_ = ledger.give(full, holder, half_of(card), terms)
        assert isinstance(given_, Ledger)
        full = given_

    one = sync_cards.sync(full, plugin_report(1))

    assert [card.id for card in one.cards if card.healthy] == [gpu(2)]
    assert one.holders() == full.holders()
    assert reported_cards.present_cards(plugin_report(1), sync_cards.in_use(full)) == {gpu(2)}


def test_which_cards_are_present():
    report = inventory(
        device(0),
        device(1, faulted=True),
        device(2, withheld=DRAINED),
        device(3, withheld=Withheld("Unhealthy", "it is gone from its node"), vanished=True),
        device(4, unmanaged=True),
        device(5, withheld=Withheld("Retired", "worn out")),
    )

    assert reported_cards.present_cards(report, ()) == {pci(0), pci(1), pci(2)}


EXPECTED = {
    "reported cards": (inventory(device()), True),
    "cards of a device plugin": (plugin_report(1), True),
    "an inventory without reported cards yet": (NodeCardReport(NODE, expected=True), True),
    "only retired cards, which the ledger lists": (
        inventory(device(withheld=Withheld("Retired", "worn out"))),
        True,
    ),
    "only unmanaged cards": (NodeCardReport(NODE, devices=(device(unmanaged=True),), expected=True), False),
    "a deleted node": (NodeCardReport(NODE, present=False, expected=True), False),
    "nothing": (NodeCardReport(NODE), False),
}


@pytest.mark.parametrize(("report", "expected"), EXPECTED.values(), ids=EXPECTED)
def test_whether_a_node_will_have_cards(report, expected):
    assert reported_cards.are_expected(report) == expected


@given(st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4)), st.integers(0, 5))
def test_a_shrinking_node_never_prefers_what_waits_over_a_bound_pod(waiting, bound, amount):
    held = Ledger(NODE, reported_cards.from_report(plugin_report(5)).cards)
    for number in waiting | bound:
        terms = HoldTerms(bound=number in bound)
        given_ = ledger.give(held, f"ns/{9 - number}/1", half_of(gpu(number)), terms)
        assert isinstance(given_, Ledger)
        held = given_

    kept = reported_cards.present_cards(plugin_report(amount), sync_cards.in_use(held))

    assert len(kept) == amount
    lost = {gpu(number) for number in bound} - kept
    assert not lost or kept <= {gpu(number) for number in bound}


def test_a_small_device_fills_the_gap_that_alignment_leaves_between_large_ones():
    fits = {"1g.10gb": 7, "3g.30gb": 2}
    sharing = Sharing("MIG", layout=(("3g.30gb", 2), ("1g.10gb", 1)))

    slots = reported_cards.planned_slots(sharing, fits)

    assert [slot.id for slot in slots] == ["3g.30gb-0", "1g.10gb-3", "3g.30gb-4"]


@pytest.mark.parametrize("profile", ["small", "5g.50gb"])
def test_a_profile_without_a_known_size_takes_one_slice(profile):
    slots = reported_cards.planned_slots(Sharing("MIG", layout=((profile, 2),)), {})

    assert [(slot.start, slot.size) for slot in slots] == [(0, 1), (1, 1)]
