"""A change card by card: some are drained and rebuilt while the others serve.

A card that changes gets a word of its own, ahead of its pool, and is drained; once it is free and cut for
that word it serves again. When every card has the new word, the pool takes it, and the cards drop theirs.
Going back is the same with the old word.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from croupier.core.pools.change import WITHDRAWN, Member, Step
from croupier.core.pools.sharing import Sharing

TENTH: Final = 10
"""So many of them that are free, and as many that are not, change at a time: one of ten, but at least one."""


def steps(members: Sequence[Member], goal: Sharing, carried: Sharing) -> tuple[Step, ...]:
    """What to do now so that every card comes to follow `goal`, which its pool may not carry out yet."""
    own = None if goal == carried else goal
    found = [step for one in members if (step := _next(one, goal, own)) is not None]
    return (*found, *(Step(one.id, own, drained=True) for one in _chosen(members, goal)))


def _next(one: Member, goal: Sharing, own: Sharing | None) -> Step | None:
    """For a card whose turn has come, or whose own word is the pool's by now."""
    if one.drained and one.follows != goal:
        return Step(one.id, own, drained=True)  # what it was drained for is not wanted any more
    if one.follows != goal:
        return None
    ready = one.out or (one.occupancy == WITHDRAWN and one.suits(goal))
    if one.drained and ready:
        return Step(one.id, own, drained=False)
    if one.ahead and own is None and not one.drained:
        return Step(one.id, None, drained=False)
    return None


def _chosen(members: Sequence[Member], goal: Sharing) -> list[Member]:
    """Whose turn comes now: nobody waits for a card in use while free ones are left to change."""
    room = max(1, len(members) // TENTH)
    behind = sorted((one for one in members if _is_behind(one, goal)), key=lambda one: one.id)
    changing = [one for one in members if one.drained and not one.out]
    idle = [one for one in behind if one.occupancy in ("Free", WITHDRAWN)]
    if idle:
        return idle[: max(0, room - sum(1 for one in changing if not _is_busy(one)))]
    return behind[: max(0, room - len(changing))]


def _is_behind(one: Member, goal: Sharing) -> bool:
    return one.follows != goal and not one.drained and not one.out


def _is_busy(one: Member) -> bool:
    return one.occupancy not in ("Free", WITHDRAWN)


def is_done(members: Iterable[Member], goal: Sharing) -> bool:
    """Every card that can follows `goal`, and serves."""
    return all(one.out or (one.follows == goal and not one.drained) for one in members)


def changed(members: Iterable[Member], goal: Sharing) -> int:
    return sum(1 for one in members if one.follows == goal and not one.drained)
