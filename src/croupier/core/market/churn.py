"""When a limit may be changed, and how far: a budget that bounds the number of writes.

Every rule that postpones a resize returns a reason, because "why does my pod not get its target" is the
first question of its owner. A step that is too large is shortened, not refused.
"""

from dataclasses import dataclass

from croupier.core.market import units
from croupier.core.market.policy import ChurnPolicy, ResizeRate
from croupier.core.market.units import SECOND


@dataclass(frozen=True, slots=True)
class ResizeHistory:
    """The past of a pod as far as it matters for the next resize."""

    moved: int | None = None
    """When its limit was last changed."""
    throttled: int | None = None
    """When it was last observed to be throttled."""
    started: int = 0
    """When the pod was first observed, or when one of its containers restarted."""
    tokens: int = 0
    """When its token bucket is full again."""


@dataclass(frozen=True, slots=True)
class Postponed:
    """The limit should change, but not yet."""

    reason: str


def step(current: int, target: int) -> int:
    """At most twice or half of the current limit. Half is rounded up."""
    return min(target, 2 * current) if target > current else max(target, -(-current // 2))


def is_worthwhile(current: int, target: int, *, churn: ChurnPolicy, throttled: bool) -> bool:
    """Whether the difference justifies six writes. For a throttled pod half the difference is enough."""
    if target > current:
        return 1000 * (target - current) >= (churn.up_band // 2 if throttled else churn.up_band) * current
    return 1000 * (current - target) >= churn.down_band * current


def raise_postponed(history: ResizeHistory, *, churn: ChurnPolicy, now: int) -> Postponed | None:
    if (wait := _remaining(history.moved, churn.up_after, now)) > 0:
        return Postponed(f"its limit was changed recently; it may be raised in {_seconds(wait)}")
    if available_tokens(history.tokens, churn.pod, now) < 1:
        wait = _until_next_token(history.tokens, churn.pod, now)
        return Postponed(f"its resize budget is used up; the next resize is possible in {_seconds(wait)}")
    return None


def decrease_postponed(
    history: ResizeHistory, *, called: bool, churn: ChurnPolicy, now: int
) -> Postponed | None:
    """`called`: other pods are entitled to the CPU, so throttling does not postpone the decrease."""
    if (wait := _remaining(history.moved, churn.down_after, now)) > 0:
        return Postponed(f"its limit was changed recently; it may be lowered in {_seconds(wait)}")
    if (wait := _remaining(history.started, churn.quiet, now)) > 0:
        return Postponed(f"it started recently; its limit may be lowered in {_seconds(wait)}")
    if not called and (wait := _remaining(history.throttled, churn.quiet, now)) > 0:
        return Postponed(f"it was throttled recently; its limit may be lowered in {_seconds(wait)}")
    # A part of the budget is reserved for raises, so that a lowered pod can be raised again.
    if available_tokens(history.tokens, churn.pod, now) <= churn.pod.burst // (5 if called else 2):
        return Postponed("its remaining resize budget is reserved for raises")
    return None


def available_tokens(full_at: int, rate: ResizeRate, now: int) -> int:
    """Tokens now in a bucket that is full at `full_at`."""
    return rate.burst - -(-max(0, full_at - now) // rate.every)


def take_token(full_at: int, rate: ResizeRate, now: int) -> int:
    return max(full_at, now) + rate.every


def _until_next_token(full_at: int, rate: ResizeRate, now: int) -> int:
    return full_at - now - (rate.burst - 1) * rate.every


def _remaining(moment: int | None, pause: int, now: int) -> int:
    return pause - (now - moment) if moment is not None else 0


def _seconds(span: int) -> str:
    return f"{-(-span // SECOND)} s"


def describe_change(before: int, after: int) -> str:
    verb = "raised" if after > before else "lowered"
    return f"{verb} from {units.text(before)} to {units.text(after)}"
