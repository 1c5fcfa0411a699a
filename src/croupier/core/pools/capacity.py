"""The capacity of a pool, counted from the ledgers of its nodes.

Each card counts in the unit of its mode: cards, MIG devices, time slices or percent. A card that cannot be
allocated now (faulted, drained, silent agent) counts only with its held units, as used and as total. So the
available units can always be allocated.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from croupier.core.ledger import holder as holder_names
from croupier.core.model import name_list
from croupier.core.model.card import LedgerCard

MAX_LISTED: Final = 5
"""The largest number of items that a sentence lists."""


@dataclass(frozen=True, slots=True)
class CountedCard:
    """A card of the pool; `serves` is false while it cannot be allocated, whatever the state of the pool."""

    card: LedgerCard
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
        """By how much used and booked units exceed the total."""
        return max(0, self.used + self.booked - self.total)

    def is_low(self, percent: int) -> bool:
        """Less than this percentage is available. An empty pool is not low."""
        return self.deficit > 0 or (self.total > 0 and self.available * 100 < percent * self.total)


def count(lines: Iterable[CountedCard], booked: int = 0) -> Capacity:
    total = used = 0
    for line in lines:
        held = used_units(line.card)
        used += held
        total += max(units(line.card), held) if line.serves else held
    return Capacity(total, used, booked)


def units(card: LedgerCard) -> int:
    """The units of the card, in the unit of its mode."""
    if card.mode == "MIG":
        return len(card.slots)
    return 1 if card.mode == "Exclusive" else card.capacity


def used_units(card: LedgerCard) -> int:
    if card.mode == "MIG":
        return sum(1 for slot in card.slots if slot.holder)
    return len(card.holders) if card.mode == "Exclusive" else card.used


def holdings(card: LedgerCard) -> Iterator[str]:
    """`team/trainer holds 50 % of card node-1-0000-65-00-0`, for each holder."""
    for holder, share in sorted(card.holders.items()):
        yield f"{holder_names.pod_key(holder)} holds {_share(card, share)}card {card.id}"
    for slot in card.slots:
        if slot.holder:
            yield f"{holder_names.pod_key(slot.holder)} holds MIG device {slot.id} of card {card.id}"


def _share(card: LedgerCard, share: int) -> str:
    if card.mode == "TimeSlice":
        return f"{share} {'slice' if share == 1 else 'slices'} of "
    return f"{share} % of " if card.mode == "Percent" else ""


def shortened_list(items: Iterable[str]) -> str:
    """The first few items, and how many more there are."""
    return name_list.shortened(list(items), MAX_LISTED)
