"""The capacity of a pool, counted from the ledgers of its nodes.

Each card counts in the unit of its mode: cards, MIG devices, time slices or percent. A card that cannot be
allocated now (faulted, drained, silent agent) counts only with its held units, as used and as total. So the
available units can always be allocated. Units are never mixed: while a pool changes card by card, cards whose
mode is not that of the pool are not counted, and `Capacity.uncounted` says so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.reported_cards import MAX_SLOTS
from croupier.core.model import name_list, sharing
from croupier.core.model.card import MAX_CARDS, CardMode, LedgerCard
from croupier.core.model.card_request import WHOLE_CARD
from croupier.core.model.sharing import PoolMode, Sharing

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
    uncounted: str = ""
    """A clause about cards that count in another unit; empty if there are none."""

    @property
    def available(self) -> int:
        return max(0, self.total - self.used - self.booked)

    @property
    def deficit(self) -> int:
        """By how much used and booked units exceed the total."""
        return max(0, self.used + self.booked - self.total)

    def is_low(self, percent: int) -> bool:
        """Less than this percentage is available. An empty pool is not low."""
        return self.deficit > 0 or self.available * 100 < percent * self.total


def in_unit_of(lines: Iterable[CountedCard], mode: PoolMode) -> Iterator[CountedCard]:
    """The cards that count in the unit of the pool's mode."""
    return (line for line in lines if line.card.mode == sharing.card_mode(mode))


def count(lines: Iterable[CountedCard], mode: PoolMode, booked: int = 0) -> Capacity:
    """The capacity in the unit of the pool's mode."""
    cards = tuple(lines)
    total = used = 0
    for line in in_unit_of(cards, mode):
        held = used_units(line.card)
        used += held
        total += max(units(line.card), held) if line.serves else held
    return Capacity(total, used, booked, _uncounted(cards, mode))


def _uncounted(lines: Iterable[CountedCard], mode: PoolMode) -> str:
    others = [line for line in lines if line.card.mode != sharing.card_mode(mode)]
    if not others:
        return ""
    free: Counter[str] = Counter()
    for line in others:
        spare = units(line.card) - used_units(line.card) if line.serves else 0
        free[_UNIT_NAMES[line.card.mode]] += spare
    cards = "1 card counts" if len(others) == 1 else f"{len(others)} cards count"
    left = " and ".join(f"{number} free {unit}" for unit, number in sorted(free.items()))
    return f"{cards} in another unit while the pool changes, with {left}"


_UNIT_NAMES: Final[Mapping[CardMode, str]] = {
    "Percent": "percent",
    "Exclusive": "cards",
    "MIG": "MIG devices",
    "TimeSlice": "time slices",
}


def card_units(shared: Sharing, fits: Mapping[str, int]) -> int:
    """The units of a card that is shared so. `fits` is the number of devices by MIG profile, if known."""
    match shared.mode:
        case "MPS":
            return WHOLE_CARD
        case "Exclusive":
            return 1
        case "TimeSlice":
            return shared.slices
        case "MIG":
            return sum(number for _, number in shared.layout) or fits.get(shared.profile) or MAX_SLOTS


def per_pod(cards: Iterable[tuple[str, int]]) -> int:
    """The most units that one pod can get, from the node and the units of every card.

    A pod gets all its units on one node, and a ledger has at most `MAX_CARDS` cards.
    """
    nodes: dict[str, list[int]] = {}
    for node, number in cards:
        nodes.setdefault(node, []).append(number)
    return max((sum(sorted(found, reverse=True)[:MAX_CARDS]) for found in nodes.values()), default=0)


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
