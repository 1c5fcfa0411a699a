"""How a pool changes the way its cards are shared, and what it does when they are not as it says.

Nothing is changed under anybody. A change of the whole pool closes it, waits until nobody holds anything,
lets the cards be rebuilt, and opens it again; a rebuild that fails goes back to what was before and is not
tried again until somebody changes the wish or confirms it. Card by card (core/pools/rollout.py) the pool
stays open. No pod is ever ended for it: past the deadline the pool says who is waited for.

What is remembered between two looks is in the objects: what is carried out now (status.allocation), the
change under way (`Change`, in the pool's ConfigMap) and the conditions. So it does not matter who looks next.
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
IN_ORDER: Final = Verdict(False, "InOrder", "the cards are as the pool says, and no other pool's")
CONFIGURED: Final = Verdict(True, "Configured", "every card is shared as the pool says")


def decide(facts: Facts) -> Outcome:
    carried, change = _taken_up(facts)
    if facts.leaving:
        return _leave(facts, carried, change)
    if (drift := _drift(facts, carried)) is not None:
        closed = replace(drift, reason=DRIFTED)
        return Outcome(carried, change, closed, configured=replace(drift, holds=False), misconfigured=drift)
    goal = _goal(facts, change)
    if change is not None and change.failed and goal != change.before:
        change = None  # another wish, or a person's word that this one shall be tried again
    behind = any(one.follows != carried and not one.out for one in facts.members)
    if facts.per_card or (goal == carried and behind):
        return _card_by_card(facts, carried, change, goal)
    return _whole(facts, carried, change, goal)


def _taken_up(facts: Facts) -> tuple[Sharing, Change | None]:
    """Where the last look left it, even if it was cut off between its writes."""
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
        why = f"{change.failed}; the pool goes back to {carried}, {_cards(late)}"
        return _closed(facts, carried, change, _stuck(facts, "RollingBack", why, late))
    return _settled(facts, carried, replace(change, over=True))


def _drain(facts: Facts, carried: Sharing, change: Change | None, goal: Sharing) -> Outcome:
    busy = _held(facts.members)
    if busy or not facts.closed:
        why = f"the pool changes from {carried} to {goal} once nobody holds its cards{_awaited(busy)}"
        return _closed(facts, carried, change, _stuck(facts, "Draining", why, busy))
    begun = Change(change.before if change is not None else carried, goal)
    return _rebuild(facts, goal, begun)


def _rebuild(facts: Facts, carried: Sharing, change: Change) -> Outcome:
    broken = [one for one in facts.members if one.failed(carried)]
    if broken and change.before != carried:
        failed = replace(change, failed=_failure(broken, carried))
        why = f"{failed.failed}; the pool goes back to {change.before}"
        return _closed(facts, change.before, failed, Verdict(True, "RollingBack", why))
    if late := _unfinished(facts.members, carried):
        why = f"the cards are rebuilt from {change.before} to {carried}, {_cards(late)}"
        return _closed(facts, carried, change, _stuck(facts, "Rebuilding", why, late))
    return _settled(facts, carried, None)


def _card_by_card(facts: Facts, carried: Sharing, change: Change | None, goal: Sharing) -> Outcome:
    members = facts.members
    broken = [one for one in members if one.follows == goal != carried and one.failed(goal)]
    if broken:
        change, goal = Change(carried, goal, _failure(broken, goal)), carried
    if rollout.is_done(members, goal):
        over = replace(change, over=True) if change is not None and change.failed else None
        settled = _settled(facts, goal, over)
        # Cards drop their own words at a later look, when everybody has heard the pool's.
        return settled if goal == carried else replace(settled, steps=())
    steps = rollout.steps(members, goal, carried)
    count = f"{rollout.changed(members, goal)} of {len(members)} cards are"
    why = (
        f"{change.failed}; {count} back at {goal}" if change else f"{count} changed from {carried} to {goal}"
    )
    moving = [one for one in members if one.drained and one.occupancy != WITHDRAWN]
    verdict = _stuck(facts, ROLLING_OUT, f"{why}{_awaited(moving)}", moving)
    configured = replace(verdict, holds=False)
    kept = change if change is not None and change.failed else None
    open_ = Verdict(False, "PerCard", "the pool serves while its cards change one by one")
    return Outcome(carried, kept, open_, configured, misconfigured=_conflict(facts), steps=steps)


def _settled(facts: Facts, carried: Sharing, change: Change | None) -> Outcome:
    """Nothing is under way, but for single cards that just came or failed."""
    configured = CONFIGURED
    if change is not None:
        why = f"{change.failed}; the pool is back at {carried} until its allocation is changed or confirmed"
        configured = Verdict(False, "RolledBack", why)
    elif late := [one for one in facts.members if not one.suits(carried)]:
        configured = Verdict(False, "CardsNotCut", f"not shared as {carried} yet, {_cards(late)}")
    steps = rollout.steps(facts.members, carried, carried)
    return Outcome(carried, change, SERVING, configured, misconfigured=_conflict(facts), steps=steps)


def _closed(facts: Facts, carried: Sharing, change: Change | None, why: Verdict) -> Outcome:
    return Outcome(carried, change, why, replace(why, holds=False), misconfigured=_conflict(facts))


def _stuck(facts: Facts, reason: str, why: str, late: Sequence[Member]) -> Verdict:
    """Past the deadline it says who is waited for; nobody is ended for it."""
    return Verdict(True, STUCK if facts.overdue and late else reason, why)


def _leave(facts: Facts, carried: Sharing, change: Change | None) -> Outcome:
    busy = _held(facts.members)
    why = f"the pool is deleted once nobody holds its cards{_awaited(busy)}"
    closed = _stuck(facts, "Deleting", why, busy)
    configured = Verdict(False, "Deleting", why)
    return Outcome(
        carried, change, closed, configured, misconfigured=IN_ORDER, release=facts.closed and not busy
    )


def _drift(facts: Facts, carried: Sharing) -> Verdict | None:
    """From the moment a card was found cut by somebody else, until a person says that it is right."""
    found = [one for one in facts.members if one.cut is not None and one.cut.state == DRIFTED and not one.out]
    if found:
        why = f"somebody else cut the pool's cards, which are to be {carried}: {_cards(found)}"
        return Verdict(True, DRIFTED, why)
    if facts.misconfigured not in (DRIFTED, UNCONFIRMED):
        return None
    amiss = [one for one in facts.members if not one.out and not one.suits(one.follows)]
    if late := [one for one in amiss if not one.failed(one.follows)]:
        return Verdict(True, DRIFTED, f"cards that somebody else cut are repaired, {_cards(late)}")
    if facts.confirmed:
        return None
    but = f", but for those that cannot be repaired, {_cards(amiss)}" if amiss else ""
    why = f"the cards are as the pool says again{but}; confirm it with: croupier pools confirm"
    return Verdict(True, UNCONFIRMED, why)


def _conflict(facts: Facts) -> Verdict:
    if facts.conflicts:
        return Verdict(True, "CardContested", capacity.listed(facts.conflicts))
    if facts.elder:
        why = f"pool {facts.elder} is older and has the same resource; delete this pool, or that one"
        return Verdict(True, "ResourceTaken", why)
    return IN_ORDER


def _held(members: Iterable[Member]) -> list[Member]:
    """Those that somebody has, or could still be given."""
    return [one for one in members if one.occupancy != WITHDRAWN or one.holdings]


def _unfinished(members: Iterable[Member], carried: Sharing) -> list[Member]:
    """Of those that go back: one that fails at that too is left to a person, and gives nothing."""
    return [one for one in members if not (one.out or one.suits(carried) or one.failed(carried))]


def _failure(broken: Sequence[Member], wanted: Sharing) -> str:
    messages = (f"card {one.id}: {one.cut.message}" for one in broken if one.cut is not None)
    return f"the change to {wanted} failed ({capacity.listed(messages)})"


def _cards(members: Sequence[Member]) -> str:
    """`2 cards to go: node-1-gpu-0 (Waiting), ...`."""
    named = (f"{one.id} ({_state(one)})" for one in members)
    return f"{_number(len(members))} to go: {capacity.listed(named)}"


def _state(one: Member) -> str:
    if one.cut is None:
        return one.occupancy or "unknown"
    return f"{one.cut.state}: {one.cut.message}" if one.cut.message else one.cut.state


def _awaited(busy: Sequence[Member]) -> str:
    """Who is waited for, so that a person can ask them."""
    if not busy:
        return ""
    if holders := [held for one in busy for held in one.holdings]:
        return f": {capacity.listed(holders)}"
    if silent := sum(1 for one in busy if not one.occupancy):
        return f": of {_number(silent)} the ledger does not tell who holds them"
    return f": the ledger has {_number(len(busy))} to withdraw"


def _number(cards: int) -> str:
    return "1 card" if cards == 1 else f"{cards} cards"
