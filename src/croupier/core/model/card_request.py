"""The card request of a pod.

A request may have several items; the pod gets all of them on one node, or nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from croupier.core.model import name_list

WHOLE_CARD = 100
"""A whole card in percent."""


@dataclass(frozen=True, slots=True)
class CardShares:
    """`percent` of each of `cards` different cards; 100 percent is a whole card."""

    cards: int
    percent: int = WHOLE_CARD
    pool: str = ""

    def __str__(self) -> str:
        cards = name_list.counted(self.cards, "card")
        whole = f"{cards}" if self.percent == WHOLE_CARD else f"{self.percent} % of {cards}"
        return f"{whole}{of_pool(self.pool)}"


@dataclass(frozen=True, slots=True)
class MigDevices:
    """`count` MIG devices of one profile, on one or several cards."""

    profile: str
    count: int
    pool: str = ""

    def __str__(self) -> str:
        return f"{self.count} × MIG {self.profile}{of_pool(self.pool)}"


@dataclass(frozen=True, slots=True)
class PoolUnits:
    """`count` units of a pool: cards, percent, MIG devices or time slices, depending on the pool's mode.

    The count is what quotas are charged, and the grant is computed from it. `spread` is how the annotations
    divide it over cards; it never changes the amount.
    """

    pool: str
    count: int
    spread: CardShares | None = None

    def __str__(self) -> str:
        return f"{self.count} of pool {self.pool}" if self.spread is None else f"{self.spread}"


@dataclass(frozen=True, slots=True)
class TimeSlices:
    """`count` time slices: the meaning of units of a pool with time-sliced cards."""

    count: int
    pool: str = ""

    def __str__(self) -> str:
        slices = "slice" if self.count == 1 else "slices"
        return f"{self.count} time {slices}{of_pool(self.pool)}"


CardRequestItem: TypeAlias = CardShares | MigDevices | PoolUnits
CardRequest: TypeAlias = tuple[CardRequestItem, ...]


def describe(wants: Iterable[CardRequestItem | TimeSlices]) -> str:
    """`50 % of 2 cards and 1 × MIG 1g.10gb`."""
    return " and ".join(str(want) for want in wants)


def of_pool(pool: str) -> str:
    return f" of pool {pool}" if pool else ""
