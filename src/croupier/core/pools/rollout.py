"""A rollout card by card: some cards are drained and changed while the others serve.

A card that changes gets its own sharing annotation and is drained; once it is free and has the new layout it
serves again. When every card has the new sharing, the pool adopts it and the annotations are removed.
A rollback works the same way with the old sharing.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from croupier.core.model.sharing import Sharing
from croupier.core.pools.sharing_change import WITHDRAWN, MemberStep, PoolMember

BATCH_FRACTION: Final = 10
"""One tenth of the free cards and one tenth of the busy cards change at a time, but at least one."""


def steps(members: Sequence[PoolMember], goal: Sharing, applied: Sharing) -> tuple[MemberStep, ...]:
    """The next steps to bring every card to `goal`; `carried` is the sharing that the pool applies now."""
    own = None if goal == applied else goal
    due = [step for member in members if (step := _next(member, goal, own)) is not None]
    return (*due, *(MemberStep(member.id, own, drained=True) for member in _chosen(members, goal)))


def _next(member: PoolMember, goal: Sharing, own: Sharing | None) -> MemberStep | None:
    """The next step of a card that is changing, or whose annotation is not needed any more."""
    if member.drained and member.desired_sharing != goal:
        return MemberStep(member.id, own, drained=True)  # it was drained for an outdated goal
    if member.desired_sharing != goal:
        return None
    ready = member.unavailable or (member.occupancy == WITHDRAWN and member.matches(goal))
    if member.drained and ready:
        return MemberStep(member.id, own, drained=False)
    if member.has_own_sharing and own is None and not member.drained:
        return MemberStep(member.id, None, drained=False)
    return None


def _chosen(members: Sequence[PoolMember], goal: Sharing) -> list[PoolMember]:
    """The cards to drain now: free cards first, and busy cards only when no free card is left."""
    room = max(1, len(members) // BATCH_FRACTION)
    behind = sorted((member for member in members if _is_behind(member, goal)), key=lambda member: member.id)
    changing = [member for member in members if member.drained and not member.unavailable]
    idle = [member for member in behind if member.occupancy in ("Free", WITHDRAWN)]
    if idle:
        return idle[: max(0, room - sum(1 for member in changing if not _is_busy(member)))]
    return behind[: max(0, room - len(changing))]


def _is_behind(member: PoolMember, goal: Sharing) -> bool:
    return member.desired_sharing != goal and not member.drained and not member.unavailable


def _is_busy(member: PoolMember) -> bool:
    return member.occupancy not in ("Free", WITHDRAWN)


def is_done(members: Iterable[PoolMember], goal: Sharing) -> bool:
    """Every card that can change has the sharing `goal` and is not drained."""
    return all(
        member.unavailable or (member.desired_sharing == goal and not member.drained) for member in members
    )


def changed(members: Iterable[PoolMember], goal: Sharing) -> int:
    return sum(1 for member in members if member.desired_sharing == goal and not member.drained)
