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

from croupier.core.model import name_list
from croupier.core.model.condition import DesiredCondition
from croupier.core.model.sharing import ReportedLayout, Sharing
from croupier.core.pools import capacity, rollout
from croupier.core.pools.sharing_change import (
    CONFIGURED,
    MAINTENANCE,
    MISCONFIGURED,
    WITHDRAWN,
    PoolDecision,
    PoolFacts,
    PoolMember,
    SharingChange,
)

STUCK: Final = "GPUModeChangeStuck"
ROLLING_OUT: Final = "RollingOut"
DRIFTED: Final = "Drifted"
UNCONFIRMED: Final = "AwaitingConfirmation"
IMPOSSIBLE: Final = "LayoutImpossible"
"""The reason of Misconfigured: no card that the pool selects can be shared as it specifies."""
NOT_STARTED: Final = "ChangeImpossible"
"""The reason of Configured: a change that is not started because no card could be shared so."""

NOT_IN_MAINTENANCE: Final = DesiredCondition(MAINTENANCE, "False", "Serving", "the pool is not being changed")
NOT_MISCONFIGURED: Final = DesiredCondition(
    MISCONFIGURED,
    "False",
    "InOrder",
    "the cards match the allocation of the pool, and no other pool claims them",
)
ALL_CONFIGURED: Final = DesiredCondition(
    CONFIGURED, "True", "Configured", "every card matches the allocation of the pool"
)


def decide(facts: PoolFacts) -> PoolDecision:
    carried, change = _resume(facts)
    facts = _following(facts, carried)
    if facts.deleting:
        return _delete(facts, carried, change)
    if _is_refused(facts, carried):
        return _without_change(facts, carried)
    return _change(facts, carried, change)


def _is_refused(facts: PoolFacts, applied: Sharing) -> bool:
    """The cards have a sharing that works, and the wanted one is impossible on every card."""
    works = bool(facts.members) and facts.misconfigured != IMPOSSIBLE
    return bool(facts.impossible) and facts.wanted != applied and works


def _without_change(facts: PoolFacts, applied: Sharing) -> PoolDecision:
    """The decision for the previous sharing, and why the wanted one is not tried."""
    decision = decide(replace(facts, wanted=applied, impossible=""))
    why = f"{facts.impossible}; until then the pool stays at {applied}"
    return replace(decision, configured=DesiredCondition(CONFIGURED, "False", NOT_STARTED, why))


def _change(facts: PoolFacts, carried: Sharing, change: SharingChange | None) -> PoolDecision:
    if (drift := _drift(facts, carried)) is not None:
        closed = replace(drift, type=MAINTENANCE, reason=DRIFTED)
        return PoolDecision(carried, change, closed, _not_configured(drift), misconfigured=drift)
    goal = _goal(facts, change)
    if change is not None and change.failed and goal != change.before:
        change = None  # the allocation was changed, or a user confirmed to retry it
    behind = any(member.desired_sharing != carried and not member.unavailable for member in facts.members)
    if facts.per_card or (goal == carried and behind):
        return _card_by_card(facts, carried, change, goal)
    return _change_pool(facts, carried, change, goal)


def _resume(facts: PoolFacts) -> tuple[Sharing, SharingChange | None]:
    """The state after the last reconcile, even if it was interrupted between its writes."""
    carried, change = facts.applied or facts.wanted, facts.change
    if change is None:
        return carried, None
    if change.failed:
        return change.before, change
    return carried, change if change.after == carried else None


def _following(facts: PoolFacts, applied: Sharing) -> PoolFacts:
    """The facts once the pool has this sharing: the cards without a sharing of their own follow it."""
    members = (
        member if member.has_own_sharing else replace(member, desired_sharing=applied)
        for member in facts.members
    )
    return replace(facts, members=tuple(members))


def _goal(facts: PoolFacts, change: SharingChange | None) -> Sharing:
    refused = change is not None and change.failed and change.after == facts.wanted
    return change.before if change is not None and refused and not facts.confirmed else facts.wanted


def _change_pool(
    facts: PoolFacts, applied: Sharing, change: SharingChange | None, goal: Sharing
) -> PoolDecision:
    if goal != applied:
        return _drain(facts, applied, change, goal)
    if change is None:
        return _settled(facts, applied, None)
    if not change.failed:
        return _rebuild(facts, applied, change)
    if not change.over and (late := _unfinished(facts.members, applied)):
        why = f"{change.failed}; the pool is rolled back to {applied}, {_cards(late)}"
        return _closed(facts, applied, change, _stuck(facts, "RollingBack", why, late))
    return _settled(facts, applied, replace(change, over=True))


def _drain(facts: PoolFacts, applied: Sharing, change: SharingChange | None, goal: Sharing) -> PoolDecision:
    busy = _busy(facts.members)
    if busy or not facts.closed:
        why = f"the pool changes from {applied} to {goal} once no pod holds its cards{_waiting_for(busy)}"
        return _closed(facts, applied, change, _stuck(facts, "Draining", why, busy))
    begun = SharingChange(change.before if change is not None else applied, goal)
    return _rebuild(facts, goal, begun)


def _rebuild(facts: PoolFacts, applied: Sharing, change: SharingChange) -> PoolDecision:
    broken = [member for member in facts.members if member.failed(applied)]
    if broken and change.before != applied:
        failed = replace(change, failed=_failure(broken, applied))
        why = f"{failed.failed}; the pool is rolled back to {change.before}"
        return _closed(
            facts, change.before, failed, DesiredCondition(MAINTENANCE, "True", "RollingBack", why)
        )
    if late := _unfinished(facts.members, applied):
        why = f"the cards are being changed from {change.before} to {applied}, {_cards(late)}"
        return _closed(facts, applied, change, _stuck(facts, "Rebuilding", why, late))
    return _settled(facts, applied, None)


def _card_by_card(
    facts: PoolFacts, applied: Sharing, change: SharingChange | None, goal: Sharing
) -> PoolDecision:
    members = facts.members
    broken = [
        member for member in members if member.desired_sharing == goal != applied and member.failed(goal)
    ]
    if broken:
        change, goal = SharingChange(applied, goal, _failure(broken, goal)), applied
    if rollout.is_done(members, goal):
        over = replace(change, over=True) if change is not None and change.failed else None
        return _settled(facts, goal, over)
    steps = rollout.steps(members, goal, applied)
    changed = rollout.changed(members, goal)
    count = f"{name_list.part_of(changed, len(members), 'card')} {name_list.be(changed)}"
    why = (
        f"{change.failed}; {count} back at {goal}" if change else f"{count} changed from {applied} to {goal}"
    )
    moving = [member for member in members if member.drained and member.occupancy != WITHDRAWN]
    verdict = _stuck(facts, ROLLING_OUT, f"{why}{_waiting_for(moving)}", moving)
    kept = change if change is not None and change.failed else None
    open_ = DesiredCondition(
        MAINTENANCE, "False", "PerCard", "the pool stays open while its cards change one by one"
    )
    return PoolDecision(
        applied, kept, open_, _not_configured(verdict), misconfigured=_conflict(facts), steps=steps
    )


def _settled(facts: PoolFacts, applied: Sharing, change: SharingChange | None) -> PoolDecision:
    """No change is in progress; single cards may be new or failed."""
    configured = ALL_CONFIGURED
    if change is not None:
        why = f"{change.failed}; the pool stays at {applied} until its allocation is changed or confirmed"
        configured = DesiredCondition(CONFIGURED, "False", "RolledBack", why)
    elif late := [member for member in facts.members if not member.matches(applied)]:
        why = f"cards do not have the sharing {applied} yet, {_cards(late)}"
        configured = DesiredCondition(CONFIGURED, "False", "CardsNotCut", why)
    # Annotations of cards follow in a later reconcile, when all components know the pool's sharing.
    steps = rollout.steps(facts.members, applied, applied) if applied == facts.applied else ()
    return PoolDecision(
        applied, change, NOT_IN_MAINTENANCE, configured, misconfigured=_conflict(facts), steps=steps
    )


def _closed(
    facts: PoolFacts, applied: Sharing, change: SharingChange | None, why: DesiredCondition
) -> PoolDecision:
    return PoolDecision(applied, change, why, _not_configured(why), misconfigured=_conflict(facts))


def _not_configured(why: DesiredCondition) -> DesiredCondition:
    return replace(why, type=CONFIGURED, status="False")


def _stuck(facts: PoolFacts, reason: str, why: str, late: Sequence[PoolMember]) -> DesiredCondition:
    """After the deadline the reason is GPUModeChangeStuck; no pod is deleted."""
    return DesiredCondition(MAINTENANCE, "True", STUCK if facts.overdue and late else reason, why)


def _delete(facts: PoolFacts, applied: Sharing, change: SharingChange | None) -> PoolDecision:
    busy = _busy(facts.members)
    why = f"the pool is deleted once no pod holds its cards{_waiting_for(busy)}"
    closed = _stuck(facts, "Deleting", why, busy)
    configured = DesiredCondition(CONFIGURED, "False", "Deleting", why)
    return PoolDecision(
        applied,
        change,
        closed,
        configured,
        misconfigured=NOT_MISCONFIGURED,
        release=facts.closed and not busy,
    )


def _drift(facts: PoolFacts, applied: Sharing) -> DesiredCondition | None:
    """The drift of the pool, from a foreign repartitioning of a card until a user confirms the repair."""
    drifted = [
        member
        for member in facts.members
        if member.cut is not None and member.cut.state == DRIFTED and not member.unavailable
    ]
    if drifted:
        why = f"another program repartitioned cards of the pool, which must be {applied}: {_cards(drifted)}"
        return DesiredCondition(MISCONFIGURED, "True", DRIFTED, why)
    if facts.misconfigured not in (DRIFTED, UNCONFIRMED):
        return None
    amiss = [
        member
        for member in facts.members
        if not member.unavailable and not member.matches(member.desired_sharing)
    ]
    if late := [member for member in amiss if not member.failed(member.desired_sharing)]:
        why = f"cards that another program repartitioned are repaired, {_cards(late)}"
        return DesiredCondition(MISCONFIGURED, "True", DRIFTED, why)
    if facts.confirmed:
        return None
    but = f", except cards that cannot be repaired, {_cards(amiss)}" if amiss else ""
    why = f"the cards match the allocation of the pool again{but}; confirm with: croupier pools confirm"
    return DesiredCondition(MISCONFIGURED, "True", UNCONFIRMED, why)


def _conflict(facts: PoolFacts) -> DesiredCondition:
    if facts.impossible:
        return DesiredCondition(MISCONFIGURED, "True", IMPOSSIBLE, facts.impossible)
    if facts.conflicts:
        why = capacity.shortened_list(facts.conflicts)
        return DesiredCondition(MISCONFIGURED, "True", "CardContested", why)
    if facts.older_duplicate:
        why = f"the older pool {facts.older_duplicate} has the same resource; delete one of the two pools"
        return DesiredCondition(MISCONFIGURED, "True", "ResourceTaken", why)
    return NOT_MISCONFIGURED


def _busy(members: Iterable[PoolMember]) -> list[PoolMember]:
    """The cards that a pod holds, or that could still be allocated."""
    return [member for member in members if member.occupancy != WITHDRAWN or member.holdings]


def _unfinished(members: Iterable[PoolMember], applied: Sharing) -> list[PoolMember]:
    """The cards that still have to change. A card that failed is left to a user and serves nothing."""
    return [
        member
        for member in members
        if not (member.unavailable or member.matches(applied) or member.failed(applied))
    ]


def _failure(broken: Sequence[PoolMember], wanted: Sharing) -> str:
    messages = (f"card {member.id}: {member.cut.message}" for member in broken if member.cut is not None)
    return f"the change to {wanted} failed ({capacity.shortened_list(messages)})"


def _cards(members: Sequence[PoolMember]) -> str:
    """`2 cards to go: node-1-gpu-0 (Waiting), ...`. An unknown layout is never wrong."""
    named = (f"{member.id} ({_state(member.cut)})" for member in members if member.cut is not None)
    return f"{_number(len(members))} to go: {capacity.shortened_list(named)}"


def _state(layout: ReportedLayout) -> str:
    return f"{layout.state}: {layout.message}" if layout.message else layout.state


def _waiting_for(busy: Sequence[PoolMember]) -> str:
    """The holders that the change waits for."""
    if not busy:
        return ""
    if holders := [holding for member in busy for holding in member.holdings]:
        return f": {capacity.shortened_list(holders)}"
    if unknown := sum(1 for member in busy if not member.occupancy):
        return f": the holders of {_number(unknown)} are unknown"
    return f": the ledger has not withdrawn {_number(len(busy))} yet"


def _number(cards: int) -> str:
    return name_list.counted(cards, "card")
