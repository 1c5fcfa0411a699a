"""The cards of a node, from its inventory or from the resources of its device plugin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.ledgers import capacity, ledger, rebuild, refit
from croupier.core.ledgers.capacity import Device, Pool, Report
from croupier.core.ledgers.ledger import MOST_CARDS, Card, Ledger, Part, Slot, Terms
from tests.core import stages
from tests.core.stages import NODE, gpu, half, pci, plain

POOLS = {
    "shared": Pool("MPS"),
    "alone": Pool("Exclusive"),
    "turns": Pool("TimeSlice", slices=4),
    "small": Pool("MIG", profile="1g.10gb"),
    "mixed": Pool("MIG", layout=(("2g.20gb", 2), ("3g.40gb", 1))),
    "wrong": Pool("MIG", layout=(("7g.80gb", 2),)),
}
A100 = {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}


def inventory(*devices: Device) -> Report:
    return Report(NODE, devices=devices, pools=POOLS)


def device(index: int | None = 0, **known) -> Device:
    return Device(pci(index or 0), index, **{"fits": A100, **known})


def slots(card: Card) -> list[tuple[str, int, int]]:
    return [(slot.profile, slot.start, slot.size) for slot in card.slots]


SHARED = {
    "in no pool: by percent": (device(), Card(pci(0), 0)),
    "MPS: by percent in the pool": (device(pool="shared"), Card(pci(0), 0, pool="shared")),
    "exclusive": (device(pool="alone"), Card(pci(0), 0, "Exclusive", pool="alone")),
    "time-sliced": (device(pool="turns"), Card(pci(0), 0, "TimeSlice", capacity=4, pool="turns")),
    "of an unknown pool: unhealthy": (device(pool="?"), Card(pci(0), 0, pool="?", healthy=False)),
    "faulted: unhealthy": (device(faulted=True), Card(pci(0), 0, healthy=False)),
}


@pytest.mark.parametrize(("reported", "card"), SHARED.values(), ids=SHARED)
def test_the_mode_of_an_inventory_card(reported, card):
    assert capacity.count(inventory(reported)).cards == (card,)


def test_a_pool_partitions_its_cards():
    small, mixed, wrong, unknown = capacity.count(
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
    pool = Pool("MIG", layout=(("2g.20gb", 2), ("3g.30gb", 1)))
    fits = {"1g.10gb": 7, "2g.20gb": 3, "3g.30gb": 2}
    (card,) = capacity.count(Report(NODE, devices=(device(pool="p", fits=fits),), pools={"p": pool})).cards

    assert slots(card) == [("3g.30gb", 0, 3), ("2g.20gb", 4, 2), ("2g.20gb", 6, 2)]


def cut(*profiles: str) -> tuple[Slot, ...]:
    """Adjacent slots of one memory slice each."""
    return tuple(Slot(f"{profile}-{start}", profile, start, 1) for start, profile in enumerate(profiles))


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
    "unhealthy while it is withheld": (device(cut=SEVEN, withheld="it is drained"), "MIG", 7, False),
    "unhealthy with overlapping devices": (device(cut=(*SEVEN, Slot("x", "3g.40gb", 5, 4))), "MIG", 0, False),
    "unhealthy with a device beyond its end": (device(cut=(Slot("x", "3g.40gb", 6, 4),)), "MIG", 0, False),
    "with the new sharing while it is ahead of its pool": (
        device(pool="small", cut=cut("2g.20gb"), ahead=Pool("MIG", layout=(("2g.20gb", 1),))),
        "MIG",
        1,
        True,
    ),
    "unhealthy with the old layout while it is ahead of its pool": (
        device(pool="small", cut=SEVEN, ahead=Pool("MIG", layout=(("2g.20gb", 1),))),
        "MIG",
        7,
        False,
    ),
    "unhealthy while its pool is in maintenance": (device(pool="resting"), "Percent", 0, False),
}
CHANGING = {
    **POOLS,
    "resting": Pool("MPS", withheld="its pool is in Maintenance"),
}


@pytest.mark.parametrize(("reported", "mode", "slots", "healthy"), TOLD.values(), ids=TOLD)
def test_the_mode_of_a_card_with_reported_partitioning(reported, mode, slots, healthy):
    (card,) = capacity.count(Report(NODE, devices=(reported,), pools=CHANGING)).cards

    assert (card.mode, len(card.slots), card.healthy) == (mode, slots, healthy)


def test_all_cards_of_a_node_with_a_silent_agent_are_unhealthy():
    cards = capacity.count(Report(NODE, devices=(device(0), device(1)), silent=True)).cards

    assert [card.healthy for card in cards] == [False, False]


def test_a_card_with_two_names_is_one_card():
    by_number = Device(gpu(0), 0)
    cards = capacity.count(inventory(by_number, device(0), Device(gpu(1), 1))).cards

    assert [card.id for card in cards] == [pci(0), gpu(1)]


def test_with_a_partitioning_plugin_only_the_offered_cards_are_healthy():
    devices = tuple(Device(gpu(index), index) for index in range(4))
    offered = {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 7}
    cards = capacity.count(Report(NODE, devices=devices, allocatable=offered), half(gpu(2))).cards

    whole = [card.id for card in cards if card.mode == "Percent" and card.healthy]
    assert whole == [gpu(2)], "the card that is in use"
    assert sum(len(card.slots) for card in cards) == 7
    assert len({card.index for card in cards}) == len(cards)


def test_a_withheld_card_keeps_its_holders_and_gets_no_new_ones():
    before = held(inventory(device(0)), *half(pci(0)))
    after = refit.refit(before, inventory(device(0, withheld="it is drained")))

    (card,) = after.cards
    assert (card.healthy, card.used, card.free) == (False, 50, 0)
    assert card.epoch > before.cards[0].epoch


def test_an_ignored_card_is_left_out_but_counts_as_inventory():
    report = Report(NODE, devices=(device(ignored=True),), allocatable={"nvidia.com/gpu": 8})

    assert capacity.count(report).cards == ()


def test_cards_without_a_known_index_get_a_free_one():
    cards = capacity.count(inventory(Device("x"), Device("y", 0), Device("z", 999))).cards

    assert [(card.id, card.index) for card in cards] == [("y", 0), ("x", 1), ("z", 2)]


def test_a_node_without_inventory_has_indexed_cards_and_placeholders_for_mig_devices():
    cards = capacity.count(plain(2, **{"1g.10gb": 10, "2g.20gb.me": 1})).cards

    assert [(card.id, card.index, card.mode, len(card.slots)) for card in cards] == [
        (gpu(0), 0, "Percent", 0),
        (gpu(1), 1, "Percent", 0),
        (f"{NODE}-mig-1g.10gb-0", 2, "MIG", 8),
        (f"{NODE}-mig-1g.10gb-1", 3, "MIG", 2),
        (f"{NODE}-mig-2g.20gb-me-0", 4, "MIG", 1),
    ]
    assert ledger.faults(Ledger(NODE, cards)) == []


def test_the_node_of_the_worked_example():
    cards = capacity.count(plain(4, **{"1g.10gb": 28, "2g.20gb": 12})).cards

    free = [slot.profile for card in cards for slot in card.free_slots()]
    assert (free.count("1g.10gb"), free.count("2g.20gb")) == (28, 12)
    assert sum(card.mode == "Percent" for card in cards) == 4


def test_too_many_cards_are_reported_as_a_problem():
    counted = capacity.count(plain(10**9))

    assert len(counted.cards) == 32
    assert counted.troubles == (f"node {NODE} reports more than 32 cards; the others are ignored",)


def test_a_too_long_node_name_is_reported_as_a_problem():
    counted = capacity.count(Report("n" * 250, allocatable={"nvidia.com/gpu": 1}))

    assert counted.cards == ()
    assert "250" in counted.troubles[0] or "253" in counted.troubles[0]


def test_the_cards_of_a_deleted_node_are_unhealthy():
    gone = Report(NODE, present=False, devices=(device(),))

    assert [card.healthy for card in capacity.count(gone).cards] == [False]


def held(report: Report, *parts: Part) -> Ledger:
    given = ledger.give(Ledger(NODE, stages.cards_of(report)), "ns/a/1", parts, Terms(bound=True))
    assert isinstance(given, Ledger)
    return given


def test_a_withdrawn_card_is_one_without_holders():
    fewer = refit.refit(held(plain(4), *half(gpu(3))), plain(3))

    assert [(card.id, card.healthy) for card in fewer.cards] == [
        (gpu(0), True),
        (gpu(1), True),
        (gpu(3), True),
    ]


def test_a_held_card_stays_unhealthy_when_it_is_withdrawn():
    none = refit.refit(held(plain(2), *half(gpu(1))), plain(0))

    assert [(card.id, card.healthy, card.used) for card in none.cards] == [(gpu(1), False, 50)]


def test_withdrawn_mig_devices_are_those_without_holders():
    before = held(plain(0, **{"1g.10gb": 10}), Part(f"{NODE}-mig-1g.10gb-1", slots=("1g.10gb-1",)))
    after = refit.refit(before, plain(0, **{"1g.10gb": 1}))

    assert after.grant("ns/a/1") == before.grant("ns/a/1")
    assert sum(len(card.slots) for card in after.cards) == 1


def test_holders_follow_their_cards_to_inventory_names_and_back():
    before = held(plain(2), *half(gpu(0), gpu(1)))
    named = refit.refit(before, inventory(device(0), device(1)))
    back = refit.refit(named, plain(2))

    assert named.grant("ns/a/1") == half(pci(0), pci(1))
    assert len(named.cards) == 2
    assert back.grant("ns/a/1") == before.grant("ns/a/1")


def test_holders_of_placeholder_devices_move_to_real_ones():
    before = held(plain(0, **{"1g.10gb": 7}), Part(f"{NODE}-mig-1g.10gb-0", slots=("1g.10gb-2", "1g.10gb-5")))
    after = refit.refit(before, inventory(device(pool="small")))

    assert [card.id for card in after.cards] == [pci(0)]
    assert after.grant("ns/a/1") == (Part(pci(0), slots=("1g.10gb-0", "1g.10gb-1")),)


@given(stages.reports(), stages.reports(), st.data())
def test_no_report_loses_a_holder_or_overcommits(first, second, data):
    before = stages.rebuilt(*data.draw(stages.honest(first)), report=first)
    after = refit.refit(before, second)

    assert ledger.faults(after) == []
    assert after.holders() == before.holders()
    assert refit.refit(after, second) == after
    reported = len(capacity.count(second, refit.in_use(after)).cards)
    assert sum(card.healthy for card in after.cards) <= reported


@given(stages.reports())
def test_counting_is_deterministic(report):
    once = capacity.count(report)

    assert ledger.faults(Ledger(NODE, once.cards)) == []
    assert len(once.cards) <= MOST_CARDS
    assert capacity.count(report) == once
    assert rebuild.rebuild(NODE, once.cards, (), (), stages.NOON).ledger.cards == once.cards
