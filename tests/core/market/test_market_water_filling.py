"""The solver equals the greedy algorithm for any sizes and weights."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from croupier.core.market import water_filling
from croupier.core.market.water_filling import Claimant, FillResult

WEIGHTS = st.one_of(st.integers(1, 5), st.sampled_from([1, 7, 100, 997, 1_000, 100_000, 10**9 + 7]))


@st.composite
def crowds(draw: st.DrawFn, most: int = 8) -> list[Claimant]:
    found = []
    for number in range(draw(st.integers(0, most))):
        low = draw(st.integers(0, 12))
        high = low + draw(st.integers(0, 30))
        found.append(Claimant(f"c{number}", low, high, draw(WEIGHTS), draw(st.integers(-5, 25))))
    return found


SUPPLIES = st.integers(-3, 200)


def one_by_one(crowd: list[Claimant], supply: int) -> list[int]:
    """The reference algorithm: the next quantum goes to the lowest (x + 1 - base) / weight, then by name."""
    amounts = [one.low for one in crowd]
    for _ in range(supply - sum(amounts)):
        able = [
            (Fraction(amounts[index] + 1 - one.base, one.weight), one.name, index)
            for index, one in enumerate(crowd)
            if amounts[index] < one.high
        ]
        if not able:
            break
        amounts[min(able)[2]] += 1
    return amounts


@given(crowds(), SUPPLIES)
def test_it_equals_the_greedy_algorithm(crowd, supply):
    assert list(water_filling.fill(crowd, supply).amounts) == one_by_one(crowd, supply)


def test_without_claimants_the_supply_is_left_or_short():
    assert water_filling.fill([], 3) == FillResult((), left=3, short=0)
    assert water_filling.fill([], -3) == FillResult((), left=0, short=3)


def test_equal_claimants_are_served_in_turn():
    """With equal levels, a level that is slightly too high would give a quantum to all of them."""
    for size in (1, 2, 9, 33):
        for weight in (1, 3, 1000):
            crowd = [Claimant(f"c{index:02}", 0, 50, weight) for index in range(size)]
            for supply in (size - 1, size, size + 1, 3 * size - 1):
                assert list(water_filling.fill(crowd, supply).amounts) == one_by_one(crowd, supply)


@given(crowds(), SUPPLIES)
def test_the_supply_is_used_up_or_all_caps_are_reached_and_floors_are_kept(crowd, supply):
    """Capacity and floors: the sum is the supply, unless the caps are below it or the floors above it."""
    filled = water_filling.fill(crowd, supply)
    floors, caps = sum(one.low for one in crowd), sum(one.high for one in crowd)

    assert all(one.low <= got <= one.high for one, got in zip(crowd, filled.amounts, strict=True))
    assert sum(filled.amounts) == max(floors, min(caps, supply))
    assert filled.left == max(0, supply - caps)
    assert filled.short == max(0, floors - supply)


CAPS_BEFORE_A_FLOOR = [
    Claimant("capped", 6, 36, 7),
    Claimant("at its floor", 12, 13, 1),
    Claimant("small", 0, 25, 7),
]
"""With a supply of 73 no quantum is left for the last step: two are at their caps, and one at its floor."""


@given(crowds(), SUPPLIES)
@example(CAPS_BEFORE_A_FLOOR, 73)
def test_theta_is_the_level_of_the_last_quantum(crowd, supply):
    """Exactly clip(floor(base + weight × theta), low, high), or one less for claimants tied at theta."""
    filled = water_filling.fill(crowd, supply)
    if sum(filled.amounts) == sum(one.low for one in crowd):
        assert filled.theta == 0
        return
    for one, got in zip(crowd, filled.amounts, strict=True):
        level = max(one.low, min(one.high, one.base + (one.weight * filled.theta).__floor__()))
        tied = (one.weight * filled.theta).denominator == 1
        assert got == level or (tied and got == level - 1)


@given(crowds(), SUPPLIES, st.randoms(use_true_random=False))
def test_the_order_of_claimants_does_not_matter(crowd, supply, dice):
    mixed = dice.sample(crowd, len(crowd))
    before = dict(zip((one.name for one in crowd), water_filling.fill(crowd, supply).amounts, strict=True))

    after = dict(zip((one.name for one in mixed), water_filling.fill(mixed, supply).amounts, strict=True))
    assert before == after


@given(crowds(), SUPPLIES, st.integers(2, 1000))
def test_only_proportions_of_weights_matter(crowd, supply, times):
    heavier = [one._replace(weight=one.weight * times) for one in crowd]

    once, more = water_filling.fill(crowd, supply), water_filling.fill(heavier, supply)
    assert once.amounts == more.amounts
    assert once.theta == more.theta * times


@given(st.lists(WEIGHTS, min_size=1, max_size=6), st.integers(1, 50), st.integers(2, 9))
def test_an_even_division_scales_with_its_amounts(weights, level, times):
    """Scale invariance of amounts is exact for integral shares, and up to rounding otherwise."""
    crowd = [Claimant(f"c{index}", 0, 10**12, weight) for index, weight in enumerate(weights)]
    supply = level * sum(weights)

    once, more = water_filling.fill(crowd, supply).amounts, water_filling.fill(crowd, supply * times).amounts
    assert once == tuple(weight * level for weight in weights)
    assert more == tuple(times * got for got in once)


BAD = {
    "no weight": Claimant("a", 0, 1, 0),
    "a floor above its cap": Claimant("a", 2, 1),
    "a negative floor": Claimant("a", -1, 1),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_invalid_claimants_are_refused(bad):
    with pytest.raises(ValueError, match="weight of at least 1 and 0 <= low <= high"):
        water_filling.fill([bad], 1)
