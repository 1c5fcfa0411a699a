"""Which processes use a card: whether its holders do, and whether others do.

The agent looks every few seconds, but its report says only what lasts: since when no holder has used the
card, and which users are no holders. Both count after some time, so that processes that come and go are no
change of the report, and a pod that is starting or has just ended is no stranger.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

SETTLE: Final = timedelta(seconds=60)
"""How long a card is unused, or used by a stranger, before it is reported."""
MAX_STRANGERS: Final = 8
"""How many strangers of a card are reported."""


@dataclass(frozen=True, slots=True)
class CardUse:
    """What is remembered of one card between two looks."""

    holders: frozenset[str] | None = None
    """The holders at the last look. None after a restart."""
    used: datetime | None = None
    """When a holder last used the card, or the holders last changed. None if no look has succeeded yet."""
    strangers: Mapping[str, datetime] = field(default_factory=dict)
    """Users that hold nothing of the card, and since when."""

    def idle_since(self, now: datetime) -> datetime | None:
        """Since when no holder has used the card. None if it has no holders, or is used."""
        idle = bool(self.holders) and self.used is not None and now - self.used >= SETTLE
        return self.used if idle else None

    def reported_strangers(self, now: datetime) -> tuple[str, ...]:
        lasting = (name for name, since in self.strangers.items() if now - since >= SETTLE)
        return tuple(sorted(lasting))[:MAX_STRANGERS]


def observe(
    before: CardUse, holders: Mapping[str, datetime | None], users: Collection[str] | None, now: datetime
) -> CardUse:
    """The state after one more look. `holders` have their times of creation; `users` is None if unknown."""
    held = frozenset(holders)
    if users is None:
        return _unknown(before, held, now)
    strangers = {name: before.strangers.get(name, now) for name in users if name not in held}
    fresh = before.used is None or _changed(before, holders, before.used) or not held.isdisjoint(users)
    return CardUse(held, now if fresh else before.used, strangers)


def _changed(before: CardUse, holders: Mapping[str, datetime | None], used: datetime) -> bool:
    """Whether the holders changed. After a restart: whether one of them is younger than the last use."""
    if before.holders is not None:
        return before.holders != frozenset(holders)
    return any(created is None or created > used for created in holders.values())


def _unknown(before: CardUse, held: frozenset[str], now: datetime) -> CardUse:
    """Without an answer nothing becomes idle: what is idle stays so, until the holders change."""
    if before.holders not in (None, held) or before.used is None:
        return CardUse(held)
    idle = now - before.used >= SETTLE
    return CardUse(held, before.used if idle else now)
