"""A request item as one node interprets it, with the modes of suitable cards.

Units of a pool are whole cards, percent, MIG devices or slices, depending on the mode of the pool's cards.
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
