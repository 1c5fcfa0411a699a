"""A request item as one node interprets it, with the modes of suitable cards.

Units of a pool are whole cards, percent, MIG devices or slices, depending on the mode of the pool's cards.
"""

from dataclasses import dataclass
from typing import Final

from croupier.core.model.card import CardMode
from croupier.core.model.card_request import CardShares, MigDevices, TimeSlices

WHOLE_OR_PART: Final[tuple[CardMode, ...]] = ("Percent", "Exclusive")
PERCENT: Final[tuple[CardMode, ...]] = ("Percent",)
EXCLUSIVE: Final[tuple[CardMode, ...]] = ("Exclusive",)
MIG: Final[tuple[CardMode, ...]] = ("MIG",)
TIME_SLICE: Final[tuple[CardMode, ...]] = ("TimeSlice",)


@dataclass(frozen=True, slots=True)
class NodeRequest:
    want: CardShares | TimeSlices | MigDevices
    modes: tuple[CardMode, ...]
