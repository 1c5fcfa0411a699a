"""What a ledger has free, by the resources that request its cards."""

import pytest
from hypothesis import given

from croupier.core.ledger import overview
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard, MigSlot
from tests.core.ledger_builders import NODE, card_id, exclusive, ledgers_and_requests, shared

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


@given(ledgers_and_requests())
def test_whole_cards_are_at_most_the_free_cards(drawn):
    ledger, _ = drawn
    free = overview.free_amounts(ledger)

    assert all(amount >= 0 for amount in free.values())
    assert free.get("nvidia.com/gpu", 0) <= overview.summary(ledger).cards.free
