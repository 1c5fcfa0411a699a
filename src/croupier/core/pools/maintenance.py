"""Decides how a pool changes the sharing of its cards, and how it reacts to drift.

Cards in use are never changed. A change of the whole pool closes it, waits until no pod holds a card, lets
the agents rebuild the cards, and opens the pool again. A failed rebuild is rolled back and not retried until
the allocation is changed or confirmed. A rollout card by card (core/pools/rollout.py) keeps the pool open. No
pod is deleted for a change: after the deadline the conditions name the pods that the change waits for.

All state between two reconciles is stored in objects: the applied sharing (status.allocation), the change in
progress (`SharingChange`, in the ConfigMap of the pool) and the conditions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from croupier.core.pools import capacity, rollout
from croupier.core.pools.change import WITHDRAWN, Change, Facts, Member, Outcome, Verdict
from croupier.core.pools.sharing import Sharing

STUCK: Final = "GPUModeChangeStuck"
ROLLING_OUT: Final = "RollingOut"
DRIFTED: Final = "Drifted"
UNCONFIRMED: Final = "AwaitingConfirmation"

SERVING: Final = Verdict(False, "Serving", "the pool is not being changed")
IN_ORDER: Final = Verdict(
    False, "InOrder", "the cards match the allocation of the pool, and no other pool claims them"
)
CONFIGURED: Final = Verdict(True, "Configured", "every card matches the allocation of the pool")


def decide(facts: Facts) -> Outcome:
    carried, change = _taken_up(facts)
    if facts.leaving:
        return _leave(facts, carried, change)
    if (drift := _drift(facts, carried)) is not None:
        closed = replace(drift, reason=DRIFTED)
        return Outcome(carried, change, closed, configured=replace(drift, holds=False), misconfigured=drift)
    goal = _goal(facts, change)
    if change is not None and change.failed and goal != change.before:
        change = None  # the allocation was changed, or a user confirmed to retry it
    behind = any(member.follows != carried and not member.out for member in facts.members)
    if facts.per_card or (goal == carried and behind):
        return _card_by_card(facts, carried, change, goal)
    return _whole(facts, carried, change, goal)


def _taken_up(facts: Facts) -> tuple[Sharing, Change | None]:
    """The state after the last reconcile, even if it was interrupted between its writes."""
    carried, change = facts.carried or facts.wanted, facts.change
    if change is None:
        return carried, None
    if change.failed:
        return change.before, change
    return carried, change if change.after == carried else None


def _goal(facts: Facts, change: Change | None) -> Sharing:
    refused = change is not None and change.failed and change.after == facts.wanted
    return change.before if change is not None and refused and not facts.confirmed else facts.wanted


def _whole(facts: Facts, carried: Sharing, change: Change | None, goal: Sharing) -> Outcome:
    if goal != carried:
        return _drain(facts, carried, change, goal)
    if change is None:
        return _settled(facts, carried, None)
    if not change.failed:
        return _rebuild(facts, carried, change)
    if not change.over and (late := _unfinished(facts.members, carried)):
        why = f"{change.failed}; the pool is rolled back to {carried}, {_cards(late)}"
        return _closed(facts, carried, change, _stuck(facts, "RollingBack", why, late))
    return _settled(facts, carried, replace(change, over=True))


def _drain(facts: Facts, carried: Sharing, change: Change | None, goal: Sharing) -> Outcome:
    busy = _held(facts.members)
    if busy or not facts.closed:
        why = f"the pool changes from {carried} to {goal} once no pod holds its cards{_awaited(busy)}"
        return _closed(facts, carried, change, _stuck(facts, "Draining", why, busy))
    begun = Change(change.before if change is not None else carried, goal)
    return _rebuild(facts, goal, begun)


def _rebuild(facts: Facts, carried: Sharing, change: Change) -> Outcome:
    broken = [member for member in facts.members if member.failed(carried)]
    if broken and change.before != carried:
        failed = replace(change, failed=_failure(broken, carried))
        why = f"{failed.failed}; the pool is rolled back to {change.before}"
        return _closed(facts, change.before, failed, Verdict(True, "RollingBack", why))
    if late := _unfinished(facts.members, carried):
        why = f"the cards are being changed from {change.before} to {carried}, {_cards(late)}"
        return _closed(facts, carried, change, _stuck(facts, "Rebuilding", why, late))
    return _settled(facts, carried, None)


def _card_by_card(facts: Facts, carried: Sharing, change: Change | None, goal: Sharing) -> Outcome:
    members = facts.members
    broken = [member for member in members if member.follows == goal != carried and member.failed(goal)]
    if broken:
        change, goal = Change(carried, goal, _failure(broken, goal)), carried
    if rollout.is_done(members, goal):
        over = replace(change, over=True) if change is not None and change.failed else None
        settled = _settled(facts, goal, over)
        # A later reconcile removes the annotations of cards, when all components know the pool's sharing.
        return settled if goal == carried else replace(settled, steps=())
    steps = rollout.steps(members, goal, carried)
    count = f"{rollout.changed(members, goal)} of {len(members)} cards are"
    why = (
        f"{change.failed}; {count} back at {goal}" if change else f"{count} changed from {carried} to {goal}"
    )
    moving = [member for member in members if member.drained and member.occupancy != WITHDRAWN]
    verdict = _stuck(facts, ROLLING_OUT, f"{why}{_awaited(moving)}", moving)
    configured = replace(verdict, holds=False)
    kept = change if change is not None and change.failed else None
    open_ = Verdict(False, "PerCard", "the pool stays open while its cards change one by one")
    return Outcome(carried, kept, open_, configured, misconfigured=_conflict(facts), steps=steps)


def _settled(facts: Facts, carried: Sharing, change: Change | None) -> Outcome:
    """No change is in progress; single cards may be new or failed."""
    configured = CONFIGURED
    if change is not None:
        why = f"{change.failed}; the pool stays at {carried} until its allocation is changed or confirmed"
        configured = Verdict(False, "RolledBack", why)
    elif late := [member for member in facts.members if not member.suits(carried)]:
        configured = Verdict(
            False, "CardsNotCut", f"cards do not have the sharing {carried} yet, {_cards(late)}"
        )
    steps = rollout.steps(facts.members, carried, carried)
    return Outcome(carried, change, SERVING, configured, misconfigured=_conflict(facts), steps=steps)


def _closed(facts: Facts, carried: Sharing, change: Change | None, why: Verdict) -> Outcome:
    return Outcome(carried, change, why, replace(why, holds=False), misconfigured=_conflict(facts))


def _stuck(facts: Facts, reason: str, why: str, late: Sequence[Member]) -> Verdict:
    """After the deadline the reason is GPUModeChangeStuck; no pod is deleted."""
    return Verdict(True, STUCK if facts.overdue and late else reason, why)


def _leave(facts: Facts, carried: Sharing, change: Change | None) -> Outcome:
    busy = _held(facts.members)
    why = f"the pool is deleted once no pod holds its cards{_awaited(busy)}"
    closed = _stuck(facts, "Deleting", why, busy)
    configured = Verdict(False, "Deleting", why)
    return Outcome(
        carried, change, closed, configured, misconfigured=IN_ORDER, release=facts.closed and not busy
    )


def _drift(facts: Facts, carried: Sharing) -> Verdict | None:
    """The drift of the pool, from a foreign repartitioning of a card until a user confirms the repair."""
    drifted = [
        member
        for member in facts.members
        if member.cut is not None and member.cut.state == DRIFTED and not member.out
    ]
    if drifted:
        why = f"another program repartitioned cards of the pool, which must be {carried}: {_cards(drifted)}"
        return Verdict(True, DRIFTED, why)
    if facts.misconfigured not in (DRIFTED, UNCONFIRMED):
        return None
    amiss = [member for member in facts.members if not member.out and not member.suits(member.follows)]
    if late := [member for member in amiss if not member.failed(member.follows)]:
        return Verdict(
            True, DRIFTED, f"cards that another program repartitioned are repaired, {_cards(late)}"
        )
    if facts.confirmed:
        return None
    but = f", except cards that cannot be repaired, {_cards(amiss)}" if amiss else ""
    why = f"the cards match the allocation of the pool again{but}; confirm with: croupier pools confirm"
    return Verdict(True, UNCONFIRMED, why)


def _conflict(facts: Facts) -> Verdict:
    if facts.conflicts:
        return Verdict(True, "CardContested", capacity.listed(facts.conflicts))
    if facts.elder:
        why = f"the older pool {facts.elder} has the same resource; delete one of the two pools"
        return Verdict(True, "ResourceTaken", why)
    return IN_ORDER


def _held(members: Iterable[Member]) -> list[Member]:
    """The cards that a pod holds, or that could still be allocated."""
    return [member for member in members if member.occupancy != WITHDRAWN or member.holdings]


def _unfinished(members: Iterable[Member], carried: Sharing) -> list[Member]:
    """The cards that still have to change. A card that failed is left to a user and serves nothing."""
    return [
        member for member in members if not (member.out or member.suits(carried) or member.failed(carried))
    ]


def _failure(broken: Sequence[Member], wanted: Sharing) -> str:
    messages = (f"card {member.id}: {member.cut.message}" for member in broken if member.cut is not None)
    return f"the change to {wanted} failed ({capacity.listed(messages)})"


def _cards(members: Sequence[Member]) -> str:
    """`2 cards to go: node-1-gpu-0 (Waiting), ...`."""
    named = (f"{member.id} ({_state(member)})" for member in members)
    return f"{_number(len(members))} to go: {capacity.listed(named)}"


def _state(member: Member) -> str:
    if member.cut is None:
        return member.occupancy or "unknown"
    return f"{member.cut.state}: {member.cut.message}" if member.cut.message else member.cut.state


def _awaited(busy: Sequence[Member]) -> str:
    """The holders that the change waits for."""
    if not busy:
        return ""
    if holders := [holding for member in busy for holding in member.holdings]:
        return f": {capacity.listed(holders)}"
    if unknown := sum(1 for member in busy if not member.occupancy):
        return f": the holders of {_number(unknown)} are unknown"
    return f": the ledger has not withdrawn {_number(len(busy))} yet"


def _number(cards: int) -> str:
    return "1 card" if cards == 1 else f"{cards} cards"
