"""What a pool can give, what is held of it, and what is left, counted from the ledgers of its nodes.

Each card counts in the unit of its mode: itself, its MIG devices, its slices, its percent. Of a card that can
give nothing now (faulted, drained, silent) only what is held counts, on both sides: so what is left is always
what could be given, and nobody's holding eats into the cards of others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from croupier.core.ledgers import rebuild
from croupier.core.ledgers.ledger import Card

SHOWN: Final = 5
"""Holders that a sentence names; of more it says how many."""


@dataclass(frozen=True, slots=True)
class Line:
    """A card of the pool; `serves` is false while it can give nothing, whatever the pool does."""

    card: Card
    serves: bool = True


@dataclass(frozen=True, slots=True)
class Capacity:
    total: int = 0
    used: int = 0
    booked: int = 0

    @property
    def available(self) -> int:
        return max(0, self.total - self.used - self.booked)

    @property
    def deficit(self) -> int:
        """How much more is promised than there is."""
        return max(0, self.used + self.booked - self.total)

    def is_low(self, percent: int) -> bool:
        """Less than so many percent are left; of nothing, nothing can be low."""
        return self.deficit > 0 or (self.total > 0 and self.available * 100 < percent * self.total)


def count(lines: Iterable[Line], booked: int = 0) -> Capacity:
    total = used = 0
    for line in lines:
        held = used_of(line.card)
        used += held
        total += max(units(line.card), held) if line.serves else held
    return Capacity(total, used, booked)


def units(card: Card) -> int:
    """What the card can give, in the unit of its mode."""
    if card.mode == "MIG":
        return len(card.slots)
    return 1 if card.mode == "Exclusive" else card.capacity


def used_of(card: Card) -> int:
    if card.mode == "MIG":
        return sum(1 for slot in card.slots if slot.holder)
    return len(card.holders) if card.mode == "Exclusive" else card.used


def holdings(card: Card) -> Iterator[str]:
    """`team/trainer holds 50 % of card node-1-0000-65-00-0`, for each holder."""
    for holder, share in sorted(card.holders.items()):
        yield f"{rebuild.key_of(holder)} holds {_share(card, share)}card {card.id}"
    for slot in card.slots:
        if slot.holder:
            yield f"{rebuild.key_of(slot.holder)} holds MIG device {slot.id} of card {card.id}"


def _share(card: Card, share: int) -> str:
    if card.mode == "TimeSlice":
        return f"{share} {'slice' if share == 1 else 'slices'} of "
    return f"{share} % of " if card.mode == "Percent" else ""


def listed(items: Iterable[str]) -> str:
    """The first few, and how many more."""
    found = list(items)
    rest = len(found) - SHOWN
    shown = ", ".join(found[:SHOWN])
    return f"{shown} and {rest} more" if rest > 0 else shown
