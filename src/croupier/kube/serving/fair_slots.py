"""A limited number of slots that peers share fairly. Pure: who gets a slot, and who loses one.

A peer that holds no slot always gets one: if all are taken, the peer that holds the most loses its oldest. So
no peer can keep the others out, and a peer that is alone can use every slot that its own limit allows.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SlotLimits:
    total: int
    per_peer: int


class NoSlot(Exception):
    """The peer has as many slots as it may have now."""


class FairSlots(Generic[T]):
    """`T` is what holds a slot, for example a connection."""

    def __init__(self, limits: SlotLimits) -> None:
        self._limits = limits
        self._held: dict[str, list[T]] = {}
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    def held_by(self, peer: str) -> int:
        return len(self._held.get(peer, ()))

    def take(self, peer: str, holder: T) -> T | None:
        """Give `peer` a slot and return the holder that loses its slot for it, if any."""
        mine, loser = self.held_by(peer), None
        if mine >= self._limits.per_peer:
            raise NoSlot(f"{peer} holds {mine} slots")
        if self._taken >= self._limits.total:
            largest = max(self._held, key=self.held_by)
            if mine and self.held_by(largest) <= mine + 1:
                raise NoSlot(f"all {self._taken} slots are taken, and {peer} holds its share of {mine}")
            loser = self._held[largest][0]
            self.release(largest, loser)
        self._held.setdefault(peer, []).append(holder)
        self._taken += 1
        return loser

    def release(self, peer: str, holder: T) -> None:
        """No effect if the holder has lost its slot before."""
        holders = self._held.get(peer, [])
        if holder not in holders:
            return
        holders.remove(holder)
        self._taken -= 1
        if not holders:
            del self._held[peer]
