"""What a ledger has free, by the resources that request its cards."""

from dataclasses import replace

import pytest
from hypothesis import given

from croupier.core.ledger import overview
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.ledger.overview import FreeOfTotal, HolderSummary
from croupier.core.model.card import CardGrant, LedgerCard, MigSlot
from croupier.core.model.withheld import Withheld
from tests.core.ledger_builders import (
    NODE,
    NOON,
    card_id,
    exclusive,
    ledgers_and_requests,
    node,
    shared,
    with_holder,
)

SLOTS = (MigSlot("1g.10gb-0", "1g.10gb", 0, 1, "team/pod"), MigSlot("1g.10gb-1", "1g.10gb", 1, 1))

FREE = {
    "a free card, in two ways": (shared(), {"nvidia.com/gpu": 1, "gpu.mps.io/percent": 100}),
    "a shared card, not whole": (shared(0, 25), {"nvidia.com/gpu": 0, "gpu.mps.io/percent": 75}),
    "a withdrawn card, in no way": (shared(healthy=False), {"nvidia.com/gpu": 0, "gpu.mps.io/percent": 0}),
    "a card of a pool, only there": (shared(0, 25, pool="team-a"), {"gpu.deckhouse.io/team-a": 75}),
    "a whole card of a pool": (exclusive(pool="team-a"), {"gpu.deckhouse.io/team-a": 1}),
    "MIG devices": (LedgerCard(card_id(0), 0, "MIG", slots=SLOTS), {"nvidia.com/mig-1g.10gb": 1}),
    "MIG devices of a pool": (
        LedgerCard(card_id(0), 0, "MIG", slots=SLOTS, pool="team-a"),
        {"gpu.deckhouse.io/team-a": 1},
    ),
}


@pytest.mark.parametrize(("card", "free"), FREE.values(), ids=FREE)
def test_what_is_free_of_a_card(card, free):
    assert overview.free_amounts(Ledger(NODE, (card,))) == free


SEVEN = tuple(MigSlot(f"1g.10gb-{start}", "1g.10gb", start, 1) for start in range(7))
EVERY_MODE = (
    LedgerCard(card_id(0), 0),
    LedgerCard(card_id(1), 1, "MIG", slots=SEVEN),
    LedgerCard(card_id(2), 2, "Exclusive", pool="whole"),
    LedgerCard(card_id(3), 3, "Percent", pool="shares"),
    LedgerCard(card_id(4), 4, "TimeSlice", capacity=4, pool="turns"),
    LedgerCard(card_id(5), 5, "MIG", slots=SEVEN, pool="small"),
)


@pytest.mark.parametrize("state", ["Drained", "Retired"])
def test_nothing_of_a_drained_or_retired_card_is_available_by_any_resource(state):
    open_ = overview.free_amounts(Ledger(NODE, EVERY_MODE))
    closed = Ledger(
        NODE, tuple(replace(card, healthy=False, withheld=Withheld(state)) for card in EVERY_MODE)
    )

    assert len(open_) == 7
    assert overview.free_amounts(closed) == dict.fromkeys(open_, 0)


def test_a_retired_card_is_no_capacity_and_a_drained_one_is():
    cards = (
        shared(),
        replace(shared(1, healthy=False), withheld=Withheld("Drained", "swap the fan")),
        replace(shared(2, healthy=False), withheld=Withheld("Retired", "worn out")),
        shared(3, healthy=False),
    )
    sums = overview.summary(Ledger(NODE, cards))

    assert (sums.cards, sums.percent) == (FreeOfTotal(1, 3), FreeOfTotal(100, 300))
    assert sums.withheld == {"Drained": 1, "Retired": 1, "Unhealthy": 1}
    assert overview.withheld_words(sums) == "1 drained, 1 retired, 1 not healthy"


@pytest.mark.parametrize(
    ("amount", "words"), [(FreeOfTotal(1, 3), "1/3"), (FreeOfTotal(0, 3), "0/3"), (FreeOfTotal(), "-")]
)
def test_free_of_total_in_words(amount, words):
    assert str(amount) == words


def test_the_holders_of_a_node_by_name():
    card = shared()
    half = (CardGrant(card.id, 50),)
    ledger = with_holder(node(card), "team/b/uid-b", half)
    ledger = with_holder(ledger, "team/a", half, HoldTerms(until=NOON, reservation="mine"))

    assert list(overview.holder_summaries(ledger)) == [
        HolderSummary("team/a", "", NODE, half, held=True, until=NOON, reservation="mine"),
        HolderSummary("team/b", "uid-b", NODE, half),
    ]


@given(ledgers_and_requests())
def test_whole_cards_are_at_most_the_free_cards(drawn):
    ledger, _ = drawn
    free = overview.free_amounts(ledger)

    assert all(amount >= 0 for amount in free.values())
    assert free.get("nvidia.com/gpu", 0) <= overview.summary(ledger).cards.free
