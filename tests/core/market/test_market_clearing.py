"""Fairness properties of the clearing."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from croupier.core.market import clearing
from croupier.core.market.clearing import Bid, ContainerBid

WEIGHTS = st.one_of(st.integers(1, 4), st.sampled_from([10, 1_000, 12_345]))


@st.composite
def many_bids(draw: st.DrawFn, *, floors: bool = True, slack: bool = True) -> list[Bid]:
    found = []
    for number in range(draw(st.integers(1, 7))):
        floor = draw(st.integers(0, 10)) if floors else 0
        found.append(
            Bid(
                f"pod-{number}",
                demand=draw(st.integers(0, 60)),
                weight=draw(WEIGHTS),
                floor=floor,
                cap=floor + draw(st.integers(0, 50)),
                keep=draw(st.integers(0, 60)) if slack else 0,
            )
        )
    return found


SUPPLIES = st.integers(0, 200)


def amounts(bids: list[Bid], supply: int) -> dict[str, int]:
    return {share.name: share.amount for share in clearing.clear(bids, supply).shares}


def useful(bid: Bid, amount: int) -> int:
    """The part of its share that it needs."""
    return min(amount, bid.want)


@given(many_bids(), SUPPLIES)
def test_capacity_and_floors(bids, supply):
    """Never more than the supply, unless the floors alone exceed it; floors and caps are kept."""
    cleared = clearing.clear(bids, supply)
    total = sum(share.amount for share in cleared.shares)

    assert total + cleared.left == supply + cleared.short
    assert cleared.left == 0 or cleared.short == 0
    for bid, share in zip(bids, cleared.shares, strict=True):
        assert bid.floor <= share.amount <= bid.cap
        assert share.amount <= max(bid.want, bid.keep)


@given(many_bids(slack=False), SUPPLIES)
def test_nothing_is_left_while_a_demand_is_not_met(bids, supply):
    cleared = clearing.clear(bids, supply)

    if cleared.left:
        assert [share.amount for share in cleared.shares] == [bid.want for bid in bids]


@given(many_bids(), SUPPLIES)
def test_envy_is_less_than_a_quantum(bids, supply):
    """A bidder with an unmet demand is at most one quantum per weight below every other bidder.

    (x_i + 1) / w_i >= x_j / w_j for all i with x_i < want_i and all j with x_j > floor_j.
    """
    shares = amounts(bids, supply)
    for bid in bids:
        if shares[bid.name] >= bid.want:
            continue
        for other in bids:
            if shares[other.name] > other.floor:
                mine = Fraction(shares[bid.name] + 1, bid.weight)
                assert mine >= Fraction(shares[other.name], other.weight)


@given(many_bids(), SUPPLIES)
def test_each_bidder_gets_at_least_its_fixed_share(bids, supply):
    """Sharing incentive: each gets its demand, or at least its weight's part of the supply, rounded down.

    It holds if no floor is above its part; a larger floor takes from the others.
    """
    total = sum(bid.weight for bid in bids)
    parts = {bid.name: supply * bid.weight // total for bid in bids}
    assume(all(bid.floor <= parts[bid.name] for bid in bids))
    shares = amounts(bids, supply)

    assert all(shares[bid.name] >= min(bid.want, parts[bid.name]) for bid in bids)


@given(many_bids(), SUPPLIES, st.integers(0, 60))
def test_misstating_the_demand_does_not_help(bids, supply, lie):
    """Strategy-proofness: a wrong demand, high or low, never gives more of the needed CPU."""
    liar, others = bids[0], bids[1:]
    honest = amounts(bids, supply)[liar.name]
    lying = amounts([replace(liar, demand=lie), *others], supply)[liar.name]

    assert useful(liar, lying) <= useful(liar, honest)


@given(many_bids(slack=False), SUPPLIES, st.integers(1, 20))
def test_more_supply_never_reduces_a_share(bids, supply, more):
    """Resource monotonicity."""
    before, after = amounts(bids, supply), amounts(bids, supply + more)

    assert all(after[name] >= got for name, got in before.items())


@given(many_bids(slack=False), SUPPLIES)
def test_a_leaving_bidder_never_reduces_other_shares(bids, supply):
    """Population monotonicity: with one bidder fewer at the same supply no other share falls."""
    before, after = amounts(bids, supply), amounts(bids[1:], supply)

    assert all(got >= before[name] for name, got in after.items())


@given(many_bids(), SUPPLIES, st.integers(2, 50))
def test_more_weight_never_gets_less(bids, supply, times):
    """Weight monotonicity: a larger weight never reduces the share."""
    heavy = replace(bids[0], weight=bids[0].weight * times)
    before, after = amounts(bids, supply), amounts([heavy, *bids[1:]], supply)

    assert useful(heavy, after[heavy.name]) >= useful(heavy, before[heavy.name])


@given(many_bids(slack=False), SUPPLIES, st.integers(1, 40))
def test_more_demand_never_gets_less_and_never_gives_others_more(bids, supply, more):
    """Demand monotonicity."""
    eager = replace(bids[0], demand=bids[0].demand + more)
    before, after = amounts(bids, supply), amounts([eager, *bids[1:]], supply)

    assert after[eager.name] >= before[eager.name]
    assert all(after[bid.name] <= before[bid.name] for bid in bids[1:])


@given(many_bids(slack=False), SUPPLIES, st.integers(1, 6))
def test_clearing_a_subset_on_its_shares_gives_the_same_shares(bids, supply, size):
    """Consistency: bidders that leave with their shares do not change the other shares."""
    cleared = clearing.clear(bids, supply)
    shares = amounts(bids, supply)
    stay = bids[:size]
    rest = supply - sum(shares[bid.name] for bid in bids[size:])
    assume(not cleared.short)

    assert amounts(stay, rest) == {bid.name: shares[bid.name] for bid in stay}


@given(many_bids(), SUPPLIES, st.randoms(use_true_random=False), st.integers(1, 1000))
def test_order_and_unit_of_weight_do_not_matter(bids, supply, dice, times):
    """Permutation and scale invariance; ties are broken by name, not by position."""
    other = [replace(bid, weight=bid.weight * times) for bid in dice.sample(bids, len(bids))]

    assert amounts(bids, supply) == amounts(other, supply)


@given(many_bids(), SUPPLIES)
def test_the_price_is_what_weight_pays(bids, supply):
    """The price is 0 unless a demand is not met; otherwise no bidder gets more than its weight pays for."""
    cleared = clearing.clear(bids, supply)
    wanting = any(share.amount < bid.want for bid, share in zip(bids, cleared.shares, strict=True))

    assert cleared.contested == wanting
    assert (cleared.price > 0) <= wanting
    if cleared.price:
        for bid, share in zip(bids, cleared.shares, strict=True):
            assert share.amount in (bid.floor, min(share.amount, (bid.weight / cleared.price).__floor__()))


WHY = {
    "the whole demand": (Bid("a", demand=5), 10, 5, "demand"),
    "no more than its cap": (Bid("a", demand=50, cap=7), 10, 7, "cap"),
    "no less than its floor": (Bid("a", demand=1, floor=3), 10, 3, "floor"),
    "its floor, though it asks for more": (Bid("a", demand=9, floor=3), 2, 3, "floor"),
    "what is left": (Bid("a", demand=50), 10, 10, "share"),
    "slack above what it asks for": (Bid("a", demand=5, keep=8), 10, 8, "slack"),
    "slack up to its cap": (Bid("a", demand=5, keep=50, cap=7), 10, 7, "slack"),
    "nothing": (Bid("a", demand=0), 10, 0, "demand"),
}


@pytest.mark.parametrize(("bid", "supply", "amount", "why"), WHY.values(), ids=WHY)
def test_the_reason_of_a_share(bid, supply, amount, why):
    (share,) = clearing.clear([bid], supply).shares

    assert (share.amount, share.why) == (amount, why)


def test_slack_is_spread_above_demand_by_weight():
    bids = [Bid("idle", demand=2, keep=100), Bid("busy", demand=20, weight=3, keep=100)]

    assert amounts(bids, 42) == {"idle": 7, "busy": 35}


PARTS = {
    "in proportion to the originals": (
        [ContainerBid("a", 100), ContainerBid("b", 300)],
        200,
        {"a": 50, "b": 150},
    ),
    "a single container gets all": ([ContainerBid("a", 100)], 70, {"a": 70}),
    "a floor is kept": ([ContainerBid("a", 100, floor=90), ContainerBid("b", 300)], 200, {"a": 90, "b": 110}),
    "the last quantum by name": ([ContainerBid("a", 1), ContainerBid("b", 1)], 3, {"a": 2, "b": 1}),
    "demand comes first": (
        [ContainerBid("a", 100, demand=80), ContainerBid("b", 300)],
        100,
        {"a": 85, "b": 15},
    ),
    "floors above the limit": (
        [ContainerBid("a", 1, floor=5), ContainerBid("b", 1, floor=5)],
        6,
        {"a": 5, "b": 5},
    ),
}


@pytest.mark.parametrize(("parts", "limit", "expected"), PARTS.values(), ids=PARTS)
def test_a_limit_is_split_over_containers(parts, limit, expected):
    assert clearing.split(limit, parts) == expected


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 20), st.integers(0, 300)), min_size=1, max_size=6),
    st.integers(0, 2000),
)
def test_a_split_sums_to_the_limit(rows, limit):
    parts = [ContainerBid(f"c{index}", *row) for index, row in enumerate(rows)]
    split = clearing.split(limit, parts)

    assert sum(split.values()) == max(limit, sum(part.floor for part in parts))
    assert all(split[part.name] >= part.floor for part in parts)
