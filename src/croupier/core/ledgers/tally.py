"""The totals of a grant, independent of its cards.

They are used to compare a grant with a request and to describe both in the same words.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from croupier.core.ledgers.ledger import Card, Grant, Ledger, Part
from croupier.core.pods import want
from croupier.core.pods.want import Shares, Slices, Slots, Units, Wants

Unit: TypeAlias = Shares | Slices | Slots
"""A single share, slice or slot."""


def answers(ledger: Ledger, grant: Grant, wants: Wants) -> bool:
    """Whether `grant` is exactly what `wants` requests."""
    left = _counted(pieces := list(_pieces(ledger, grant)))
    units: Counter[str] = Counter()
    for item in wants:
        if isinstance(item, Units):
            units[item.pool] += item.count
        elif isinstance(item, Shares):
            left[replace(item, cards=1)] -= item.cards
        else:
            left[replace(item, count=1)] -= item.count
    if units:  # the rest of the pool's grant must match the requested units
        return _answers_units(pieces, units) and all(
            not left[unit] for unit in left if unit.pool not in units
        )
    return not any(left.values())


def _answers_units(pieces: list[tuple[Card, Part]], units: Counter[str]) -> bool:
    held: Counter[str] = Counter()
    for card, part in pieces:
        if card.pool in units:
            held[card.pool] += 1 if card.mode == "Exclusive" else part.share + len(part.slots)
    return held == units


def sentence(ledger: Ledger, grant: Grant) -> str:
    """`50 % of 2 cards and 1 × MIG 1g.10gb`."""
    counted = _counted(list(_pieces(ledger, grant)))
    return want.sentence(tuple(_times(unit, count) for unit, count in counted.items()))


def _times(unit: Unit, count: int) -> Unit:
    return replace(unit, cards=count) if isinstance(unit, Shares) else replace(unit, count=count)


def _pieces(ledger: Ledger, grant: Grant) -> Iterator[tuple[Card, Part]]:
    return ((card, part) for part in grant if (card := ledger.card(part.card)) is not None)


def _counted(pieces: list[tuple[Card, Part]]) -> Counter[Unit]:
    counted: Counter[Unit] = Counter()
    for card, part in pieces:
        if card.mode == "TimeSlice":
            counted[Slices(1, card.pool)] += part.share
        elif part.share:
            counted[Shares(1, part.share, card.pool)] += 1
        profiles = {slot.id: slot.profile for slot in card.slots}
        counted.update(Slots(profiles[slot], 1, card.pool) for slot in part.slots if slot in profiles)
    return counted
