"""A want as a node understands it: of cards in which modes.

Units of a pool mean whole cards, percent, MIG devices or slices, whichever the pool's cards give.
"""

from dataclasses import dataclass
from typing import Final

from croupier.core.ledgers.ledger import Mode
from croupier.core.pods.want import Shares, Slices, Slots

WHOLE_OR_PART: Final[tuple[Mode, ...]] = ("Percent", "Exclusive")
PERCENT: Final[tuple[Mode, ...]] = ("Percent",)
EXCLUSIVE: Final[tuple[Mode, ...]] = ("Exclusive",)
MIG: Final[tuple[Mode, ...]] = ("MIG",)
TIME_SLICE: Final[tuple[Mode, ...]] = ("TimeSlice",)


@dataclass(frozen=True, slots=True)
class Demand:
    want: Shares | Slices | Slots
    modes: tuple[Mode, ...]
