"""Water-filling in whole quanta: x_i = clip(base_i + weight_i × theta, low_i, high_i), summing to the supply.

One solver for everything the market divides: the clearing of a book, the supply left over after it, the
free CPU that raises may take, and the limit of a pod over its containers.

The reference algorithm is a greedy loop: start at the floors and give the next quantum to the claimant with
the lowest level (x + 1 - base) / weight, ordered by name among equals, until the supply is used up or all
claimants are at their caps. That takes one step per quantum. This implementation takes n log n: it computes
the level theta up to which all claimants can be filled at once from the sorted levels at which a claimant
leaves its floor or reaches its cap, and gives only the last few quanta, fewer than there are claimants, one
by one.

Nothing is rounded. Two different fractions with denominators up to the largest weight w differ by at least
1/w², so multiplying by more than w² and truncating keeps their order: integers represent levels.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from operator import gt
from typing import Final, NamedTuple

_ROUNDING_MARGIN: Final = 3
"""Subtracted from the computed level, so that truncation can never give out more than the supply."""


class Claimant(NamedTuple):
    """May get `low` to `high` quanta. Names break ties, so they must be unique."""

    name: str
    low: int
    high: int
    weight: int = 1
    base: int = 0


@dataclass(frozen=True, slots=True)
class FillResult:
    amounts: tuple[int, ...]
    """In the order of the claimants."""
    theta: Fraction = Fraction(0)
    """The level of the last quantum that was given; 0 if none was given."""
    left: int = 0
    """Supply that is left because all claimants are at their caps."""
    short: int = 0
    """How far the floors exceed the supply. Floors are granted in any case."""


@dataclass(frozen=True, slots=True)
class ClaimantColumns:
    """The claimants as columns: a pass over plain lists takes half the time."""

    names: Sequence[str]
    lows: Sequence[int]
    highs: Sequence[int]
    weights: Sequence[int]
    bases: Sequence[int]

    def scale(self) -> int:
        """More than the square of every weight; the extra bits keep the sum of truncation errors below 1."""
        return 1 << (2 * max(self.weights).bit_length() + len(self.names).bit_length() + 4)


def fill(claimants: Sequence[Claimant], supply: int) -> FillResult:
    columns = zip(*claimants, strict=True) if claimants else [()] * 5
    return fill_columns(ClaimantColumns(*columns), supply)


def fill_columns(of: ClaimantColumns, supply: int) -> FillResult:
    if not of.names:
        return FillResult((), left=max(0, supply), short=max(0, -supply))
    if min(of.weights) < 1 or min(of.lows) < 0 or any(map(gt, of.lows, of.highs)):
        raise ValueError("every claimant needs a weight of at least 1 and 0 <= low <= high")
    floors, caps = sum(of.lows), sum(of.highs)
    if floors >= supply:
        return FillResult(tuple(of.lows), short=floors - supply)
    if caps <= supply:
        return FillResult(tuple(of.highs), _highest_level(of, of.highs), left=supply - caps)
    common = gcd(*of.weights)  # only proportions matter, and small integers are faster
    return _between(replace(of, weights=[weight // common for weight in of.weights]), supply, common)


def _between(of: ClaimantColumns, supply: int, common: int) -> FillResult:
    """The supply is above the sum of the floors and below the sum of the caps."""
    scale = of.scale()
    amounts = _amounts_up_to(of, _level(of, supply, scale), scale)
    theta = _give_remaining(of, amounts, supply - sum(amounts), scale)
    return FillResult(tuple(amounts), (_highest_level(of, amounts) if theta is None else theta) / common)


def _level(of: ClaimantColumns, supply: int, scale: int) -> int:
    """A level, in units of 1/`scale`, up to which all claimants together take no more than the supply."""
    turns = []
    for low, high, weight, base in zip(of.lows, of.highs, of.weights, of.bases, strict=True):
        if low < high:
            turns.append(((low - base) * scale // weight, weight, base - low))
            turns.append(((high - base) * scale // weight, -weight, high - base))
    turns.sort()
    fixed, slope, wanted = sum(of.lows), 0, supply * scale
    for level, weight, jump in turns:
        if slope and fixed * scale + slope * level >= wanted:
            break
        fixed += jump
        slope += weight
    return (wanted - fixed * scale) // slope - _ROUNDING_MARGIN


def _amounts_up_to(of: ClaimantColumns, level: int, scale: int) -> list[int]:
    """The amounts after every quantum up to this level was given."""
    above, amounts = level + 1, []
    for low, high, weight, base in zip(of.lows, of.highs, of.weights, of.bases, strict=True):
        amount = base + (weight * above - 1) // scale
        if amount < low:
            amount = low
        elif amount > high:
            amount = high
        amounts.append(amount)
    return amounts


def _give_remaining(of: ClaimantColumns, amounts: list[int], rest: int, scale: int) -> Fraction | None:
    """Give the last quanta, each to the lowest level; return the level of the last one."""
    weights, bases, highs = of.weights, of.bases, of.highs
    heap = [
        ((amounts[index] + 1 - bases[index]) * scale // weights[index], name, index)
        for index, name in enumerate(of.names)
        if amounts[index] < highs[index]
    ]
    heapq.heapify(heap)
    index = -1
    for _ in range(rest):
        _, name, index = heap[0]
        amounts[index] += 1
        if amounts[index] < highs[index]:
            level = (amounts[index] + 1 - bases[index]) * scale // weights[index]
            heapq.heapreplace(heap, (level, name, index))
        else:
            heapq.heappop(heap)
    return Fraction(amounts[index] - bases[index], weights[index]) if rest else None


def _highest_level(of: ClaimantColumns, amounts: Sequence[int]) -> Fraction:
    """The level of the highest quantum above a floor."""
    scale = of.scale()
    levels = [
        ((amount - base) * scale // weight, amount - base, weight)
        for amount, low, weight, base in zip(amounts, of.lows, of.weights, of.bases, strict=True)
        if amount > low
    ]
    return Fraction(*max(levels)[1:]) if levels else Fraction(0)
