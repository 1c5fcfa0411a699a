"""Water-filling in whole quanta: x_i = clip(base_i + weight_i × theta, low_i, high_i), summing to the supply.

One solver for everything the market divides: the clearing of a book, what is left over after it, the room
that raises may take, and the limit of a pod over its containers.

The rule is the unit-by-unit greedy: begin at the floors, and give the next quantum to whoever then has the
least above its base for its weight, (x + 1 - base) / weight, the first by name among equals, until the
supply is used up or nobody can take more. That takes as many steps as there are quanta. This takes n log n:
the level theta up to which everybody may be filled at once is read off the sorted levels at which somebody
leaves his floor or reaches his cap, and only the last few quanta, fewer than there are claimants, are given
one by one.

Nothing is rounded. Two different fractions with denominators up to the largest weight w differ by 1/w² at
least, so that multiplying by more than w² and cutting off keeps their order: whole numbers stand for
levels.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from operator import gt
from typing import Final, NamedTuple

_SLACK: Final = 3
"""The level found is lowered by so much of its last digit, so that cut-off digits can never give too much."""


class Claimant(NamedTuple):
    """One who may get `low` to `high` quanta. Names decide ties, and so they must differ."""

    name: str
    low: int
    high: int
    weight: int = 1
    base: int = 0


@dataclass(frozen=True, slots=True)
class Filling:
    amounts: tuple[int, ...]
    """In the order of the claimants."""
    theta: Fraction = Fraction(0)
    """The level of the last quantum that was given; 0 if none was."""
    left: int = 0
    """Supply that nobody can take: all are at their caps."""
    short: int = 0
    """By how much the floors exceed the supply. They are kept: a floor is what must not be taken."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The claimants turned on their side: a pass over plain lists takes half the time."""

    names: Sequence[str]
    lows: Sequence[int]
    highs: Sequence[int]
    weights: Sequence[int]
    bases: Sequence[int]

    def scale(self) -> int:
        """Above the square of every weight; the bits for their number keep all that is cut off below 1."""
        return 1 << (2 * max(self.weights).bit_length() + len(self.names).bit_length() + 4)


def fill(claimants: Sequence[Claimant], supply: int) -> Filling:
    columns = zip(*claimants, strict=True) if claimants else [()] * 5
    return fill_columns(Columns(*columns), supply)


def fill_columns(of: Columns, supply: int) -> Filling:
    if not of.names:
        return Filling((), left=max(0, supply), short=max(0, -supply))
    if min(of.weights) < 1 or min(of.lows) < 0 or any(map(gt, of.lows, of.highs)):
        raise ValueError("every claimant needs a weight of at least 1 and 0 <= low <= high")
    floors, caps = sum(of.lows), sum(of.highs)
    if floors >= supply:
        return Filling(tuple(of.lows), short=floors - supply)
    if caps <= supply:
        return Filling(tuple(of.highs), _highest(of, of.highs), left=supply - caps)
    common = gcd(*of.weights)  # only proportions matter, and small numbers are quicker
    return _between(replace(of, weights=[weight // common for weight in of.weights]), supply, common)


def _between(of: Columns, supply: int, common: int) -> Filling:
    """When floors leave something over that caps cannot swallow."""
    scale = of.scale()
    amounts = _up_to(of, _level(of, supply, scale), scale)
    theta = _give_rest(of, amounts, supply - sum(amounts), scale)
    return Filling(tuple(amounts), (_highest(of, amounts) if theta is None else theta) / common)


def _level(of: Columns, supply: int, scale: int) -> int:
    """Up to this level, in parts of `scale`, all together take no more than the supply."""
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
    return (wanted - fixed * scale) // slope - _SLACK


def _up_to(of: Columns, level: int, scale: int) -> list[int]:
    """What each has when every quantum whose level is not above this one is given."""
    above, amounts = level + 1, []
    for low, high, weight, base in zip(of.lows, of.highs, of.weights, of.bases, strict=True):
        amount = base + (weight * above - 1) // scale
        if amount < low:
            amount = low
        elif amount > high:
            amount = high
        amounts.append(amount)
    return amounts


def _give_rest(of: Columns, amounts: list[int], rest: int, scale: int) -> Fraction | None:
    """The last quanta, each to the lowest level; returns the level of the very last."""
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


def _highest(of: Columns, amounts: Sequence[int]) -> Fraction:
    """The level of the highest quantum that stands above a floor."""
    scale = of.scale()
    levels = [
        ((amount - base) * scale // weight, amount - base, weight)
        for amount, low, weight, base in zip(amounts, of.lows, of.weights, of.bases, strict=True)
        if amount > low
    ]
    return Fraction(*max(levels)[1:]) if levels else Fraction(0)
