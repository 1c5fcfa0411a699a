"""A card in the ledger: its mode, what it can give, and its holders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from croupier.core.model.withheld import Withheld

CardMode: TypeAlias = Literal["Percent", "Exclusive", "MIG", "TimeSlice"]


MAX_CARDS = 32
"""Maximum number of cards of one node."""


MAX_HOLDERS = 64
"""Maximum number of holders of one card."""


@dataclass(frozen=True, slots=True)
class MigSlot:
    """One MIG device of a card; it is free while it has no holder."""

    id: str
    profile: str
    start: int
    size: int
    holder: str = ""


@dataclass(frozen=True, slots=True)
class LedgerCard:
    """`capacity` is percent in mode Percent, slices in TimeSlice, 100 in Exclusive; unused in MIG."""

    id: str
    index: int
    mode: CardMode = "Percent"
    epoch: int = 1
    capacity: int = 100
    healthy: bool = True
    pool: str = ""
    slots: tuple[MigSlot, ...] = ()
    holders: Mapping[str, int] = field(default_factory=dict)
    smallest: int = 1
    """In mode Percent, the smallest share of a new holder; 0 in a report that does not know it."""
    withheld: Withheld | None = None
    """Why the card takes no new holders; None also for an unhealthy card of which nothing more is known."""

    @property
    def used(self) -> int:
        return sum(self.holders.values())

    @property
    def free(self) -> int:
        """Capacity left for a new holder; 0 for an unhealthy card and for an exclusive card with a holder."""
        if not self.healthy or self.mode == "MIG" or len(self.holders) >= MAX_HOLDERS:
            return 0
        if self.mode == "Exclusive" and self.holders:
            return 0
        return max(0, self.capacity - self.used)

    @property
    def obstacle(self) -> str:
        """Why the card takes no new holders, such as `is drained: the fan is loud`; empty if it does."""
        if self.healthy:
            return ""
        return f"is {self.withheld}" if self.withheld is not None else "is not healthy"

    @property
    def is_retired(self) -> bool:
        """A person took the card out of use: it counts as no capacity."""
        return self.withheld is not None and self.withheld.state == "Retired"

    @property
    def is_free(self) -> bool:
        """The card has no holder."""
        return not self.holders and not any(slot.holder for slot in self.slots)

    def order(self) -> tuple[int, str]:
        """Sort key of the cards of a node."""
        return self.index, self.id

    def free_slots(self, profile: str = "") -> tuple[MigSlot, ...]:
        """Slots left for a new holder, of one profile or of all."""
        if not self.healthy:
            return ()
        return tuple(s for s in self.slots if not s.holder and profile in ("", s.profile))

    def holds(self, holder: str) -> bool:
        return holder in self.holders or any(slot.holder == holder for slot in self.slots)

    def units(self, part: "CardGrant") -> int:
        """The units of its pool that this part of the card is: what a request for it is charged."""
        return 1 if self.mode == "Exclusive" else part.share + len(part.slots)


@dataclass(frozen=True, slots=True)
class CardGrant:
    """A holder's part of one card: a share (percent or slices), or slots."""

    card: str
    share: int = 0
    slots: tuple[str, ...] = ()


Grant: TypeAlias = tuple[CardGrant, ...]
"""A holder's part of a node: one entry per card, in the order of the ledger."""
