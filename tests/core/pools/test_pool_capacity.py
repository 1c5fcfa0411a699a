"""The capacity of a pool is counted from ledgers, in the unit of each card, and is never negative."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.model.card import LedgerCard, MigSlot
from croupier.core.model.sharing import PoolMode, Sharing, card_mode
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools.capacity import Capacity, CountedCard

WHOLE = LedgerCard("card-0", 0, mode="Exclusive", pool="a")
SHARED = LedgerCard("card-1", 1, mode="Percent", pool="a", holders={"ml/half/1": 50})
SLICED = LedgerCard("card-2", 2, mode="TimeSlice", capacity=8, pool="a", holders={"ml/x/2": 1, "ml/y/3": 2})
CUT = LedgerCard(
    "card-3",
    3,
    mode="MIG",
    pool="a",
    slots=(MigSlot("1g.10gb-0", "1g.10gb", 0, 1, "ml/z/4"), MigSlot("1g.10gb-1", "1g.10gb", 1, 1)),
)
TAKEN = replace(WHOLE, holders={"ml/whole/5": 100})

UNITS: dict[str, tuple[LedgerCard, PoolMode, int, int]] = {
    "an exclusive card is one": (WHOLE, "Exclusive", 1, 0),
    "a used exclusive card is one": (TAKEN, "Exclusive", 1, 1),
    "percent": (SHARED, "MPS", 100, 50),
    "slices": (SLICED, "TimeSlice", 8, 3),
    "MIG devices": (CUT, "MIG", 2, 1),
}
MODES: tuple[PoolMode, ...] = ("Exclusive", "MIG", "TimeSlice", "MPS")


@pytest.mark.parametrize(("card", "mode", "total", "used"), UNITS.values(), ids=UNITS)
def test_each_mode_has_its_unit(card: LedgerCard, mode: PoolMode, total: int, used: int) -> None:
    assert pool_capacity.count([CountedCard(card)], mode) == Capacity(total, used)


def test_booked_units_are_not_available() -> None:
    found = pool_capacity.count([CountedCard(SLICED)], "TimeSlice", booked=4)

    assert (found.total, found.used, found.booked, found.available) == (8, 3, 4, 1)


def test_overbooking_is_a_deficit() -> None:
    found = pool_capacity.count([CountedCard(SLICED)], "TimeSlice", booked=7)

    assert (found.available, found.deficit) == (0, 2)


def test_an_unavailable_card_counts_with_its_held_units() -> None:
    cards = [CountedCard(TAKEN, serves=False), CountedCard(replace(WHOLE, id="card-9"))]
    found = pool_capacity.count(cards, "Exclusive")

    assert (found.total, found.used, found.available) == (2, 1, 1)
    assert pool_capacity.count([CountedCard(WHOLE, serves=False)], "Exclusive") == Capacity()


LOW = {
    "enough": (Capacity(100, 10), False),
    "exactly the limit": (Capacity(100, 90), False),
    "below the limit": (Capacity(100, 91), True),
    "an empty pool": (Capacity(), False),
    "more booked than the total": (Capacity(0, 0, 1), True),
}


@pytest.mark.parametrize(("capacity", "low"), LOW.values(), ids=LOW)
def test_low_capacity(capacity: Capacity, low: bool) -> None:
    assert capacity.is_low(10) is low


def test_holdings_as_sentences() -> None:
    said = [sentence for card in (TAKEN, SHARED, SLICED, CUT) for sentence in pool_capacity.holdings(card)]

    assert said == [
        "ml/whole holds card card-0",
        "ml/half holds 50 % of card card-1",
        "ml/x holds 1 slice of card card-2",
        "ml/y holds 2 slices of card card-2",
        "ml/z holds MIG device 1g.10gb-0 of card card-3",
    ]
    assert pool_capacity.shortened_list(said[:2] * 4).endswith("and 3 more")


some_cards = st.builds(
    lambda capacity, shares: LedgerCard(
        "card",
        0,
        capacity=max(capacity, sum(shares)),
        holders={f"ml/p/{n}": share for n, share in enumerate(shares)},
    ),
    st.integers(1, 100),
    st.lists(st.integers(1, 30), max_size=3),
)


@given(st.lists(st.builds(CountedCard, some_cards, serves=st.booleans()), max_size=8), st.integers(0, 300))
def test_available_units_are_the_free_units_of_serving_cards(lines: list[CountedCard], booked: int) -> None:
    found = pool_capacity.count(lines, "MPS", booked)

    free = sum(line.card.capacity - line.card.used for line in lines if line.serves)
    assert found.available == max(0, free - booked)
    assert found.deficit == max(0, booked - free)
    assert found.used <= found.total


def test_units_are_not_mixed_while_a_pool_changes_card_by_card() -> None:
    """30 % of one card is still held, and another card is shared by time already."""
    behind = CountedCard(replace(SHARED, holders={"ml/half/1": 30}), serves=False)
    ahead = CountedCard(replace(SLICED, holders={}))

    found = pool_capacity.count([behind, ahead], "MPS")

    assert (found.total, found.used, found.available) == (30, 30, 0)
    assert found.uncounted == (
        "1 card counts in another unit while the pool changes, with 8 free time slices"
    )
    assert pool_capacity.count([behind, ahead], "TimeSlice").total == 8
    drained = replace(ahead, serves=False)
    both = pool_capacity.count([behind, drained, drained], "MPS")
    assert both.uncounted.startswith("2 cards count in another unit")
    assert both.uncounted.endswith("with 0 free time slices")
    mixed = pool_capacity.count([behind, ahead, CountedCard(CUT)], "MPS")
    assert mixed.uncounted.endswith("with 1 free MIG devices and 8 free time slices")


any_card = st.sampled_from([WHOLE, TAKEN, SHARED, SLICED, CUT])


@given(st.lists(st.builds(CountedCard, any_card, serves=st.booleans()), max_size=8), st.sampled_from(MODES))
def test_only_cards_of_one_unit_are_added(lines: list[CountedCard], mode: PoolMode) -> None:
    found = pool_capacity.count(lines, mode)

    same = [line for line in lines if line.card.mode == card_mode(mode)]
    assert replace(found, uncounted="") == pool_capacity.count(same, mode)
    assert bool(found.uncounted) == (len(same) < len(lines))
    by_mode = [pool_capacity.count(lines, each) for each in MODES]
    assert sum(counted.used for counted in by_mode) == sum(pool_capacity.used_units(x.card) for x in lines)


SHARINGS = {
    "MPS": (Sharing("MPS"), {}, 100),
    "Exclusive": (Sharing("Exclusive"), {}, 1),
    "TimeSlice": (Sharing("TimeSlice", slices=4), {}, 4),
    "MIG with a layout": (Sharing("MIG", layout=(("1g.10gb", 2), ("3g.40gb", 1))), {}, 3),
    "MIG with a profile": (Sharing("MIG", profile="1g.10gb"), {"1g.10gb": 7}, 7),
    "MIG of an unknown card": (Sharing("MIG", profile="1g.10gb"), {}, 8),
}


@pytest.mark.parametrize(("sharing", "fits", "units"), SHARINGS.values(), ids=SHARINGS)
def test_the_units_of_a_card_that_is_shared_so(sharing: Sharing, fits: dict[str, int], units: int) -> None:
    assert pool_capacity.card_units(sharing, fits) == units


def test_one_pod_gets_what_one_node_has() -> None:
    assert pool_capacity.per_pod([("a", 100), ("b", 100), ("a", 100)]) == 200
    assert pool_capacity.per_pod([("a", 1)] * 40) == 32
    assert pool_capacity.per_pod([]) == 0
