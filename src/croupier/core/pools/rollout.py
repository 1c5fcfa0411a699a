"""A rollout card by card: some cards are drained and changed while the others serve.

A card that changes gets its own sharing annotation and is drained; once it is free and has the new layout it
serves again. When every card has the new sharing, the pool adopts it and the annotations are removed.
A rollback works the same way with the old sharing.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from croupier.core.pools.change import WITHDRAWN, Member, Step
from croupier.core.pools.sharing import Sharing

TENTH: Final = 10
"""One tenth of the free cards and one tenth of the busy cards change at a time, but at least one."""


def steps(members: Sequence[Member], goal: Sharing, carried: Sharing) -> tuple[Step, ...]:
    """The next steps to bring every card to `goal`; `carried` is the sharing that the pool applies now."""
    own = None if goal == carried else goal
    due = [step for member in members if (step := _next(member, goal, own)) is not None]
    return (*due, *(Step(member.id, own, drained=True) for member in _chosen(members, goal)))


def _next(member: Member, goal: Sharing, own: Sharing | None) -> Step | None:
    """The next step of a card that is changing, or whose annotation is not needed any more."""
    if member.drained and member.follows != goal:
        return Step(member.id, own, drained=True)  # it was drained for an outdated goal
    if member.follows != goal:
        return None
    ready = member.out or (member.occupancy == WITHDRAWN and member.suits(goal))
    if member.drained and ready:
        return Step(member.id, own, drained=False)
    if member.ahead and own is None and not member.drained:
        return Step(member.id, None, drained=False)
    return None


def _chosen(members: Sequence[Member], goal: Sharing) -> list[Member]:
    """The cards to drain now: free cards first, and busy cards only when no free card is left."""
    room = max(1, len(members) // TENTH)
    behind = sorted((member for member in members if _is_behind(member, goal)), key=lambda member: member.id)
    changing = [member for member in members if member.drained and not member.out]
    idle = [member for member in behind if member.occupancy in ("Free", WITHDRAWN)]
    if idle:
        return idle[: max(0, room - sum(1 for member in changing if not _is_busy(member)))]
    return behind[: max(0, room - len(changing))]


def _is_behind(member: Member, goal: Sharing) -> bool:
    return member.follows != goal and not member.drained and not member.out


def _is_busy(member: Member) -> bool:
    return member.occupancy not in ("Free", WITHDRAWN)


def is_done(members: Iterable[Member], goal: Sharing) -> bool:
    """Every card that can change has the sharing `goal` and is not drained."""
    return all(member.out or (member.follows == goal and not member.drained) for member in members)


def changed(members: Iterable[Member], goal: Sharing) -> int:
    return sum(1 for member in members if member.follows == goal and not member.drained)
