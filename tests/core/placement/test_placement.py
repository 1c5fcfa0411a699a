"""Placement strategies in named cases: which card, which node, and the refusal if nothing fits."""

from dataclasses import replace

import pytest

from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.core.model.card_request import CardShares, MigDevices, PoolUnits
from croupier.core.model.refusal import Refusal
from croupier.core.model.withheld import Withheld
from croupier.core.placement import placement
from tests.core.ledger_builders import STRATEGIES, exclusive, indexes, mig, node, shared, time_sliced

MANY = 64  # holders with 1 % each


def four_slices(index: int) -> LedgerCard:
    """A MIG card with half of the memory of the others."""
    return replace(mig(index), slots=mig(index).slots[:4])


CARDS = {
    "BinPack fills the fullest card that fits": (
        "BinPack",
        [shared(0), shared(1, 60), shared(2, 80)],
        CardShares(1, 30),
        [1],
    ),
    "BinPack prefers a used card to an unused one with less capacity": (
        "BinPack",
        [shared(0, capacity=80), shared(1, 10)],
        CardShares(1, 30),
        [1],
    ),
    "BinPack uses exclusive cards for whole cards": (
        "BinPack",
        [shared(0), exclusive(1)],
        CardShares(1),
        [1],
    ),
    "Spread takes the emptiest card": (
        "Spread",
        [shared(0, 10), shared(1, 60), shared(2, 5)],
        CardShares(1, 30),
        [2],
    ),
    "Spread uses exclusive cards for whole cards": ("Spread", [shared(0), exclusive(1)], CardShares(1), [1]),
    "LeastFragmentation fills a card up": (
        "LeastFragmentation",
        [shared(0), shared(1, 60), shared(2, 70)],
        CardShares(1, 30),
        [2],
    ),
    "LeastFragmentation leaves a usable rest": (
        "LeastFragmentation",
        [shared(0, 50), shared(1, 40)],
        CardShares(1, 30),
        [1],
    ),
    "LeastFragmentation keeps an unused card whole": (
        "LeastFragmentation",
        [shared(0), shared(1, 20), shared(2)],
        CardShares(2, 30),
        [0, 1],
    ),
    "LeastFragmentation uses exclusive cards for whole cards": (
        "LeastFragmentation",
        [shared(0), exclusive(1)],
        CardShares(1),
        [1],
    ),
    "shares are of different cards": ("BinPack", [shared(0), shared(1)], CardShares(2, 50), [0, 1]),
    "the first of equal MIG cards": (
        "Spread",
        [mig(2), mig(1), mig(3)],
        MigDevices("1g.10gb", 1),
        [1],
    ),
    "the first of equal time-sliced cards": (
        "BinPack",
        [time_sliced(2, pool="red"), time_sliced(1, pool="red")],
        PoolUnits("red", 1),
        [1],
    ),
    "the first card of equal ones": ("Spread", [shared(2), shared(1), shared(3)], CardShares(1, 50), [1]),
    "never an unhealthy card": ("BinPack", [shared(0, 50, healthy=False), shared(1)], CardShares(1, 50), [1]),
    "never a card of another pool": (
        "Spread",
        [shared(0, pool="red"), shared(1, 50)],
        CardShares(1, 50),
        [1],
    ),
    "never a card outside the requested pool": (
        "BinPack",
        [shared(0, 50), shared(1, pool="red")],
        CardShares(1, 50, "red"),
        [1],
    ),
    "units of an exclusive pool are cards": (
        "BinPack",
        [exclusive(0, pool="red"), exclusive(1, pool="red")],
        PoolUnits("red", 2),
        [0, 1],
    ),
    "units of a percent pool are percent of one card": (
        "BinPack",
        [shared(0, 50, pool="red"), shared(1, pool="red")],
        PoolUnits("red", 60),
        [1],
    ),
    "hundreds of a percent pool are whole cards": (
        "BinPack",
        [shared(0, pool="red"), shared(1, 1, pool="red"), shared(2, pool="red")],
        PoolUnits("red", 200),
        [0, 2],
    ),
    "BinPack puts slices onto one card, the fullest": (
        "BinPack",
        [time_sliced(0, pool="red"), time_sliced(1, 2, pool="red"), time_sliced(2, 1, pool="red")],
        PoolUnits("red", 2),
        [1],
    ),
    "BinPack puts slices that fit nowhere onto few cards": (
        "BinPack",
        [time_sliced(0, 3, pool="red"), time_sliced(1, pool="red"), time_sliced(2, 3, pool="red")],
        PoolUnits("red", 5),
        [0, 1],
    ),
    "Spread puts slices onto many cards": (
        "Spread",
        [time_sliced(0, pool="red"), time_sliced(1, 1, pool="red")],
        PoolUnits("red", 3),
        [0, 1],
    ),
    "units of a MIG pool are devices of any profile": (
        "BinPack",
        [mig(0, "mixed", taken=(0, 4, 5), pool="red"), mig(1, "large", pool="red")],
        PoolUnits("red", 2),
        [0, 1],
    ),
    "BinPack takes a MIG device of the fullest card": (
        "BinPack",
        [mig(0), mig(1, taken=(0, 1, 2)), mig(2, taken=(0,))],
        MigDevices("1g.10gb", 1),
        [1],
    ),
    "Spread takes MIG devices of the emptiest cards": (
        "Spread",
        [mig(0, taken=(0, 1)), mig(1), mig(2)],
        MigDevices("1g.10gb", 2),
        [1, 2],
    ),
    "LeastFragmentation takes a MIG device where no larger one could be": (
        "LeastFragmentation",
        [mig(0, taken=(0, 1, 2, 3)), mig(1, taken=(0, 2, 4, 5))],
        MigDevices("1g.10gb", 1),
        [1],
    ),
    "a mixed pool is tried mode by mode": (
        "BinPack",
        [exclusive(0, pool="red", taken=True), time_sliced(1, pool="red")],
        PoolUnits("red", 1),
        [1],
    ),
}


@pytest.mark.parametrize(("strategy", "cards", "want", "expected"), CARDS.values(), ids=CARDS)
def test_selected_cards(strategy, cards, want, expected):
    ledger = node(*cards)

    grant = placement.choose(ledger, (want,), strategy)

    assert not isinstance(grant, Refusal), grant
    assert sorted(indexes(ledger, grant)) == expected


def test_least_fragmentation_takes_the_slot_that_prevents_no_larger_device():
    ledger = node(mig(0, taken=(2,)))

    grant = placement.choose(ledger, (MigDevices("1g.10gb", 1),), "LeastFragmentation")

    assert not isinstance(grant, Refusal)
    assert grant[0].slots == ("1g.10gb-3",)


NODES = {
    "BinPack: a share goes to a used card": (
        "BinPack",
        [[shared(0)], [shared(0, 20)]],
        CardShares(1, 30),
        1,
    ),
    "BinPack: a share goes where least is left": (
        "BinPack",
        [[shared(0, 20)], [shared(0, 60)]],
        CardShares(1, 30),
        1,
    ),
    "BinPack: whole cards go where fewest are left": (
        "BinPack",
        [[shared(0), shared(1)], [shared(0), shared(1, 100)]],
        CardShares(1),
        1,
    ),
    "Spread: a share goes to the emptiest card": (
        "Spread",
        [[shared(0, 20)], [shared(0)]],
        CardShares(1, 30),
        1,
    ),
    "Spread: whole cards go to the emptiest node": (
        "Spread",
        [[shared(0), shared(1, 50)], [shared(0), shared(1)]],
        CardShares(1),
        1,
    ),
    "LeastFragmentation: a whole card goes to the fragmented node": (
        "LeastFragmentation",
        [[shared(n) for n in range(4)], [shared(n) for n in range(3)]],
        CardShares(1),
        1,
    ),
    "LeastFragmentation: a whole card does not split a group of four": (
        "LeastFragmentation",
        [[shared(n) for n in range(4)], [shared(n) for n in range(5)]],
        CardShares(1),
        1,
    ),
    "LeastFragmentation: a share goes to the card it fills": (
        "LeastFragmentation",
        [[shared(0, 60), shared(1)], [shared(0, 70)]],
        CardShares(1, 30),
        1,
    ),
    "LeastFragmentation: a MIG device goes to the fragmented node": (
        "LeastFragmentation",
        [[mig(0)], [mig(0, taken=(0,))]],
        MigDevices("1g.10gb", 1),
        1,
    ),
    "Spread: slices go to the emptiest card": (
        "Spread",
        [[time_sliced(0, 2, pool="red")], [time_sliced(0, 1, pool="red")]],
        PoolUnits("red", 1),
        1,
    ),
    "Spread: of equal cards, the one on the emptier node": (
        "Spread",
        [[shared(0, 60), shared(1)], [shared(0, 10), shared(1)]],
        CardShares(1, 30),
        1,
    ),
    "LeastFragmentation: of equal losses, shares go where fewer cards stay unused": (
        "LeastFragmentation",
        [[shared(0, 16), shared(1, 19), shared(2)], [shared(0, 71), shared(1)]],
        CardShares(2, 25),
        1,
    ),
    "LeastFragmentation: slices go where no group of two is split": (
        "LeastFragmentation",
        [[time_sliced(0, 2, pool="red")], [time_sliced(0, 1, pool="red")]],
        PoolUnits("red", 1),
        1,
    ),
    "LeastFragmentation: of equal losses, slices go to the fuller card": (
        "LeastFragmentation",
        [[time_sliced(0, 1, pool="red")], [time_sliced(0, 3, pool="red")]],
        PoolUnits("red", 1),
        1,
    ),
    "BinPack: a MIG device goes to a used card, even if more is left of it": (
        "BinPack",
        [[mig(0, "large", pool="red")], [mig(0, taken=(0,), pool="red")]],
        PoolUnits("red", 1),
        1,
    ),
    "BinPack: MIG devices open as few cards as possible": (
        "BinPack",
        [[mig(0, "large", pool="red"), mig(1, "large", pool="red")], [mig(0, pool="red")]],
        PoolUnits("red", 2),
        1,
    ),
    "BinPack: a MIG device goes where fewer cards are unused": (
        "BinPack",
        [
            [mig(0, taken=(0, 1)), mig(1), mig(2)],
            [mig(0, taken=(0, 1)), mig(1, taken=(0,)), mig(2, taken=(0,)), mig(3)],
        ],
        MigDevices("1g.10gb", 1),
        1,
    ),
    "BinPack: a MIG device goes to the node with less left on other cards": (
        "BinPack",
        [
            [mig(0, taken=(0, 1, 2)), mig(1, taken=(0,)), mig(2, taken=(0,))],
            [mig(0, taken=(0, 1, 2)), mig(1, taken=(0, 1)), mig(2, taken=(0,))],
        ],
        MigDevices("1g.10gb", 1),
        1,
    ),
    "Spread: of equal cards, a MIG device goes to the node with more left in proportion": (
        "Spread",
        [[mig(0), mig(1, taken=(0, 1, 2, 3)), mig(2)], [mig(0), mig(1)]],
        MigDevices("1g.10gb", 1),
        1,
    ),
    "Spread: a MIG device leaves less of a card with four slices than of one with eight": (
        "Spread",
        [[four_slices(0)], [mig(0)]],
        MigDevices("1g.10gb", 1),
        1,
    ),
    "LeastFragmentation: a MIG device goes where it splits no pair": (
        "LeastFragmentation",
        [[mig(0, taken=(0, 1, 2, 3, 6))], [mig(0, taken=(1,))]],
        MigDevices("1g.10gb", 1),
        1,
    ),
}


@pytest.mark.parametrize(("strategy", "worlds", "want", "best"), NODES.values(), ids=NODES)
def test_selected_node(strategy, worlds, want, best):
    ranks = []
    for cards in worlds:
        rank = placement.rank(node(*cards), (want,), strategy)
        assert not isinstance(rank, Refusal), rank
        ranks.append(rank)

    assert ranks.index(min(ranks)) == best
    assert len(set(ranks)) == len(ranks)


def drained(index: int) -> LedgerCard:
    return replace(shared(index, healthy=False), withheld=Withheld("Drained", "swap the fan"))


def retired(index: int) -> LedgerCard:
    return replace(shared(index, healthy=False), withheld=Withheld("Retired", "worn out"))


REFUSALS = {
    "no cards": ([], CardShares(1), "has no cards", ""),
    "none outside pools": ([shared(0, pool="red")], CardShares(1), "has no card outside pools", ""),
    "none of the pool": ([shared(0)], PoolUnits("red", 1), "has no card of pool red", ""),
    "only unhealthy cards": (
        [shared(0, healthy=False)],
        CardShares(1),
        "has no healthy card",
        "card 0 is not healthy",
    ),
    "only drained cards": (
        [drained(0), drained(1)],
        CardShares(1),
        "has no card that takes new pods (2 cards are drained: swap the fan)",
        "card 0 is drained: swap the fan, card 1 is drained: swap the fan",
    ),
    "a drained and a retired card": (
        [drained(0), retired(1), shared(2)],
        CardShares(3),
        "needs 3 free cards but has 1 (1 card is drained: swap the fan; 1 card is retired: worn out)",
        "card 0 is drained: swap the fan, card 1 is retired: worn out",
    ),
    "a faulted card is named in the detail only": (
        [replace(shared(0, healthy=False), withheld=Withheld("Unhealthy", "it is faulted")), shared(1, 1)],
        CardShares(1),
        "needs 1 free card but has 0",
        "card 0 is not healthy: it is faulted, card 1 is short by 1 %",
    ),
    "no such profile": ([mig(0, "large")], MigDevices("1g.10gb", 1), "has no MIG 1g.10gb", ""),
    "no MIG card": ([shared(0)], MigDevices("1g.10gb", 1), "has no MIG 1g.10gb", ""),
    "only MIG cards": ([mig(0)], CardShares(1), "has no card that is allocated whole", ""),
    "only exclusive cards": ([exclusive(0)], CardShares(1, 50), "has no card that is shared by percent", ""),
    "too little capacity": (
        [shared(0, 70), shared(1), shared(2, 100)],
        CardShares(2, 50),
        "needs 2 cards with 50 % free but has 1",
        "card 0 is short by 20 %, card 2 is short by 50 %",
    ),
    "one unhealthy card": (
        [shared(0, healthy=False), shared(1, 1)],
        CardShares(1),
        "needs 1 free card but has 0",
        "card 0 is not healthy, card 1 is short by 1 %",
    ),
    "too few slots": (
        [mig(0, taken=(0, 1, 2, 3, 4))],
        MigDevices("1g.10gb", 3),
        "needs 3 free MIG 1g.10gb but has 2",
        "card 0 has 2 of 7 free",
    ),
    "too few devices of any profile": (
        [mig(0, taken=(0,), pool="red")],
        PoolUnits("red", 7),
        "needs 7 free MIG devices of pool red but has 6",
        "card 0 has 6 of 7 free",
    ),
    "too few slices": (
        [time_sliced(0, 3, pool="red")],
        PoolUnits("red", 2),
        "needs 2 free time slices of pool red but has 1",
        "card 0 has 1 of 4 slices free",
    ),
    "too few cards of the pool": (
        [exclusive(0, pool="red", taken=True)],
        PoolUnits("red", 1),
        "needs 1 free card of pool red but has 0",
        "card 0 is short by 100 %",
    ),
    "neither a part of a card nor whole cards": (
        [shared(0, pool="red"), shared(1, pool="red")],
        PoolUnits("red", 150),
        "150 % is neither a part of one card nor a number of whole cards; set gpu.mps.io/cards to the number"
        " of cards and gpu.mps.io/ratio to the percent of each",
        "",
    ),
    "the maximum number of holders": (
        [shared(0, *([1] * MANY))],
        CardShares(1, 10),
        "needs 1 card with 10 % free but has 0",
        "card 0 has 64 holders, which is the maximum",
    ),
}


@pytest.mark.parametrize(("cards", "want", "reason", "detail"), REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_refusals(cards, want, reason, detail, strategy):
    assert placement.choose(node(*cards), (want,), strategy) == Refusal(reason, detail)
    assert placement.rank(node(*cards), (want,), strategy) == Refusal(reason, detail)


def test_an_empty_request_is_refused():
    assert placement.choose(node(shared(0)), (), "Spread") == Refusal("asks for no cards")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_several_items_get_different_cards_or_nothing(strategy):
    wants = (CardShares(1, 20), CardShares(1, 70))

    grant = placement.choose(node(shared(0, 20), shared(1, 50)), wants, strategy)
    refused = placement.choose(node(shared(0)), wants, strategy)

    assert not isinstance(grant, Refusal)
    assert [part.share for part in grant] == [70, 20]
    assert refused == Refusal(
        "needs 1 card with 20 % free but has 0", "card 0 is used by another part of the request"
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_rank_of_a_node_is_the_sum_over_all_items(strategy):
    wants = CardShares(1, 20), MigDevices("1g.10gb", 1)
    ledger = node(shared(0, 50), mig(1))

    both, *each = (placement.rank(ledger, items, strategy) for items in (wants, wants[:1], wants[1:]))

    assert not isinstance(both, Refusal)
    assert both == tuple(map(sum, zip(*each, strict=True)))


def test_units_of_one_pool_add_up():
    ledger = node(shared(0, pool="red"))

    grant = placement.choose(ledger, (PoolUnits("red", 30), PoolUnits("red", 30)), "BinPack")

    assert not isinstance(grant, Refusal)
    assert [part.share for part in grant] == [60]


def test_slots_of_several_items_can_share_a_card_and_are_in_its_order():
    ledger = node(mig(0, "mixed"))

    grant = placement.choose(ledger, (MigDevices("2g.20gb", 1), MigDevices("1g.10gb", 2)), "BinPack")

    assert not isinstance(grant, Refusal)
    assert [part.slots for part in grant] == [("1g.10gb-4", "1g.10gb-5", "2g.20gb-6")]


def test_a_card_without_address_is_placed_like_any_other():
    ledger = Ledger("node-1", (LedgerCard("node-1-gpu-0", 0),))

    assert not isinstance(placement.choose(ledger, (CardShares(1),), "Spread"), Refusal)
