"""When a limit may move, and how far: the budget that keeps the market from writing all day.

Every rule that stops a move says so in words, because "why does my pod not get what it should" is the first
thing its owner asks. A step that is too long is shortened, not refused.
"""

from dataclasses import dataclass

from croupier.core.market import units
from croupier.core.market.policy import Churn, Rate
from croupier.core.market.units import SECOND


@dataclass(frozen=True, slots=True)
class History:
    """What of a pod's past matters for the next move."""

    moved: int | None = None
    """When its limit was last told to move."""
    throttled: int | None = None
    """When it was last seen held back."""
    started: int = 0
    """When it was first seen, which is after it began, or when one of its containers began again."""
    tokens: int = 0
    """The moment from which its bucket is full again."""


@dataclass(frozen=True, slots=True)
class Held:
    """It should move and does not yet."""

    reason: str


def step(current: int, target: int) -> int:
    """At most to twice or half of what it is; half is rounded up, and a quantum can always be gained."""
    return min(target, 2 * current) if target > current else max(target, -(-current // 2))


def worth(current: int, target: int, *, churn: Churn, throttled: bool) -> bool:
    """Whether the difference justifies six writes. To a pod that is held back every quantum counts double."""
    if target > current:
        return 1000 * (target - current) >= (churn.up_band // 2 if throttled else churn.up_band) * current
    return 1000 * (current - target) >= churn.down_band * current


def raise_held(history: History, *, churn: Churn, now: int) -> Held | None:
    if (wait := _since(history.moved, churn.up_after, now)) > 0:
        return Held(f"its limit moved a moment ago; it may rise again in {_seconds(wait)}")
    if available(history.tokens, churn.pod, now) < 1:
        return Held(
            f"it has used up its moves; the next in {_seconds(_next(history.tokens, churn.pod, now))}"
        )
    return None


def decrease_held(history: History, *, called: bool, churn: Churn, now: int) -> Held | None:
    """`called`: others in the book are entitled to it, so that being throttled is no reason to keep it."""
    if (wait := _since(history.moved, churn.down_after, now)) > 0:
        return Held(f"its limit moved lately; it may fall in {_seconds(wait)}")
    if (wait := _since(history.started, churn.quiet, now)) > 0:
        return Held(f"it started lately; it may fall in {_seconds(wait)}")
    if not called and (wait := _since(history.throttled, churn.quiet, now)) > 0:
        return Held(f"it was throttled lately; it may fall in {_seconds(wait)}")
    # Some moves are kept for raises: one who was lowered must be able to come back.
    if available(history.tokens, churn.pod, now) <= churn.pod.burst // (5 if called else 2):
        return Held("its remaining moves are kept for raises")
    return None


def available(full_at: int, rate: Rate, now: int) -> int:
    """Tokens in a bucket that will be full at that moment."""
    return rate.burst - -(-max(0, full_at - now) // rate.every)


def take(full_at: int, rate: Rate, now: int) -> int:
    return max(full_at, now) + rate.every


def _next(full_at: int, rate: Rate, now: int) -> int:
    return full_at - now - (rate.burst - 1) * rate.every


def _since(moment: int | None, pause: int, now: int) -> int:
    return pause - (now - moment) if moment is not None else 0


def _seconds(span: int) -> str:
    return f"{-(-span // SECOND)} s"


def words(before: int, after: int) -> str:
    verb = "raised" if after > before else "lowered"
    return f"{verb} from {units.text(before)} to {units.text(after)}"
