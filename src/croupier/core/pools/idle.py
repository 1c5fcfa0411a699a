"""What happens to a card that its holders do not use, where the pool asks for it.

Nothing is taken from running pods. Notify tells their owners; Drain also keeps new pods off the card, by the
drain annotation that users set, too. A mark on the card records what was done about which idle time, so that
it is done once, and so that only the own drain is removed: one that a user set stays, and one that a user
removed is not set again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

IdleAction: TypeAlias = Literal["Notify", "Drain"]

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_DRAIN: Final = "Drain "


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """`spec.idle` of a pool."""

    after: timedelta
    action: IdleAction = "Notify"


@dataclass(frozen=True, slots=True)
class IdleCard:
    id: str
    pool: str = ""
    since: datetime | None = None
    """Since when no holder has used the card. None if it is used, or has no holders."""
    mark: str = ""
    """What was done: the action and the idle time, such as `Drain 2026-01-01T00:00:00Z`."""
    drain: str | None = None
    """The reason of the card's drain annotation. None without one."""

    @property
    def is_own_drain(self) -> bool:
        """Whether the drain is the one that the mark records."""
        own = _drain_prefix(self.mark.removeprefix(_DRAIN))
        return self.mark.startswith(_DRAIN) and self.drain is not None and self.drain.startswith(own)


@dataclass(frozen=True, slots=True)
class IdleDecision:
    mark: str | None = None
    """The new mark. None: unchanged; empty: remove it."""
    drain: str | None = None
    """The new reason of the drain annotation. None: unchanged; empty: remove it."""
    notice: str = ""
    """The sentence for the holders and the pool. Empty if there is nothing to tell."""
    again: timedelta | None = None
    """When to decide again, if nothing changes before."""


def decide(card: IdleCard, policy: IdlePolicy | None, now: datetime) -> IdleDecision:
    left = card.since + policy.after - now if policy is not None and card.since is not None else None
    if policy is None or card.since is None or left is None or left > timedelta():
        removed = "" if card.is_own_drain else None
        return IdleDecision("" if card.mark else None, removed, again=left)
    wanted = f"{policy.action} {card.since.strftime(_TIME)}"
    if card.mark == wanted:
        return IdleDecision()
    notice = f"no process of its holders has used card {card.id} since {card.since.strftime(_TIME)}"
    if policy.action == "Drain" and (card.drain is None or card.is_own_drain):
        reason = f"{_drain_prefix(card.since.strftime(_TIME))}{card.pool})"
        return IdleDecision(wanted, reason, f"{notice}; it gets no new pods until it is used again")
    return IdleDecision(wanted, "" if card.is_own_drain else None, notice)


def _drain_prefix(since: str) -> str:
    return f"idle since {since} (spec.idle of pool "
