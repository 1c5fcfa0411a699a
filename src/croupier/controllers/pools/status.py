"""The status of a GPUPool: capacity, lists and conditions.

The lists are informational and bounded, because a pool can have thousands of cards. The ConfigMap of the pool
lists all cards, and each GPUDevice names its pool.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from croupier.api import meta
from croupier.api.gpu import convert_node, convert_pool
from croupier.api.gpu.pool import (
    UNIT_OF_MODE,
    GPUPoolStatus,
    PoolCandidate,
    PoolCapacity,
    PoolDevice,
    PoolNode,
)
from croupier.api.meta import Condition
from croupier.controllers.pools.condition_events import LOW
from croupier.controllers.pools.node_matches import NodeMatch
from croupier.controllers.pools.pool_snapshot import PoolCardView, PoolSnapshot, possible_cards
from croupier.controllers.shared import conditions
from croupier.core.model import name_list
from croupier.core.model.condition import DesiredCondition
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools import sharing_change
from croupier.core.pools.capacity import Capacity
from croupier.core.pools.sharing_change import PoolDecision

MAX_LINES: Final = 500
AVAILABLE: Final = "Available"
CAPACITY_LOW: Final = "CapacityLow"
_MAX_MESSAGE: Final = 1024


@dataclass(frozen=True, slots=True)
class LowCapacityAlert:
    """Low capacity: below `percent`, reported after `lasts`."""

    percent: int = 10
    lasts: timedelta = timedelta(minutes=10)


def status(
    snapshot: PoolSnapshot, outcome: PoolDecision, capacity: Capacity, alarm: LowCapacityAlert, now: datetime
) -> GPUPoolStatus:
    allocation = convert_pool.allocation_for(outcome.sharing, snapshot.pool.spec.allocation)
    before = snapshot.pool.status.conditions
    sharings = {outcome.sharing, convert_pool.sharing(snapshot.pool.spec.allocation)}
    desired = (
        _available(snapshot, outcome, capacity),
        _low(capacity, alarm, meta.condition(before, CAPACITY_LOW), now),
        outcome.configured,
        outcome.maintenance,
        outcome.misconfigured,
        snapshot.access,
    )
    short = (replace(value, message=value.message[:_MAX_MESSAGE]) for value in desired)
    return GPUPoolStatus(
        allocation=allocation,
        capacity=PoolCapacity(
            total=capacity.total,
            used=capacity.used,
            booked=capacity.booked,
            available=capacity.available,
            per_pod=pool_capacity.per_pod(possible_cards(snapshot, sharings)),
            unit=UNIT_OF_MODE[allocation.mode],
        ),
        nodes=_nodes(snapshot)[:MAX_LINES],
        candidates=_candidates(snapshot)[:MAX_LINES],
        devices=_devices(snapshot)[:MAX_LINES],
        observed_generation=snapshot.pool.metadata.generation,
        conditions=conditions.merge(short, snapshot.pool, now),
    )


def _available(snapshot: PoolSnapshot, outcome: PoolDecision, capacity: Capacity) -> DesiredCondition:
    """Whether the pool serves at all, independent of the available units."""
    for verdict in (outcome.maintenance, outcome.misconfigured):
        if verdict.holds:
            return DesiredCondition(AVAILABLE, "False", verdict.type, verdict.message)
    if not capacity.total and not capacity.uncounted:
        return DesiredCondition(AVAILABLE, "False", "NoCapacity", _no_capacity(snapshot))
    units = _units(capacity)
    notes = (units, capacity.uncounted, sharing_change.unenforced(outcome.sharing))
    return DesiredCondition(AVAILABLE, "True", "Serving", "; ".join(filter(None, notes)))


def _units(capacity: Capacity) -> str:
    available = capacity.available
    return f"{name_list.part_of(available, capacity.total, 'unit')} {name_list.be(available)} available"


def _no_capacity(snapshot: PoolSnapshot) -> str:
    """Why the pool provides nothing now."""
    if not snapshot.cards:
        candidates = _candidates(snapshot)
        return f"the pool has no cards yet: {candidates[0].reason}" if candidates else "the pool has no cards"
    reasons = Counter(seen.trouble or _withheld(seen) for seen in snapshot.cards)
    reason, number = reasons.most_common(1)[0]
    why = reason or "the ledger does not offer it yet"
    share = name_list.part_of(number, len(snapshot.cards), "card")
    return f"no card of the pool can be allocated now; of {share}: {why}"


def _withheld(seen: PoolCardView) -> str:
    why = convert_node.withheld(seen.device)
    return why.sentence if why is not None else ""


def _low(
    capacity: Capacity, alarm: LowCapacityAlert, old: Condition | None, now: datetime
) -> DesiredCondition:
    if not capacity.is_low(alarm.percent):
        enough = f"at least {alarm.percent} % of the units are available, or the pool is empty"
        return DesiredCondition(CAPACITY_LOW, "False", "Enough", enough)
    lasts = old is not None and old.status == "True" and now - old.last_transition_time >= alarm.lasts
    left = _units(capacity)
    if capacity.deficit:
        left = f"held and booked units exceed the total of {capacity.total} by {capacity.deficit}"
    return DesiredCondition(CAPACITY_LOW, "True", LOW if lasts else "JustLow", left)


def _nodes(snapshot: PoolSnapshot) -> tuple[PoolNode, ...]:
    claims: Mapping[str, NodeMatch] = snapshot.claims or {}
    cards: dict[str, list[PoolCardView]] = {}
    for seen in snapshot.cards:
        cards.setdefault(seen.node, []).append(seen)
    return tuple(
        _node(name, claims.get(name, NodeMatch()), cards.get(name, []))
        for name in sorted(cards.keys() | {name for name, claim in claims.items() if claim.selected.number})
    )


def _node(name: str, claim: NodeMatch, cards: list[PoolCardView]) -> PoolNode:
    troubles = Counter(seen.trouble for seen in cards if seen.trouble)
    number = sum(troubles.values())
    health = (
        f"{name_list.part_of(number, len(cards), 'card')} {name_list.be(number)} unavailable"
        if number
        else "Ready"
    )
    last = next(iter(troubles), "")
    return PoolNode(
        name=name,
        total_devices=max(claim.selected.number, len(cards)),
        assigned_devices=len(cards),
        health=health if cards else "",
        last_event=last[:_MAX_MESSAGE],
    )


def _candidates(snapshot: PoolSnapshot) -> tuple[PoolCandidate, ...]:
    claims = sorted((snapshot.claims or {}).items())
    return tuple(candidate for _, claim in claims for candidate in claim.candidates)


def _devices(snapshot: PoolSnapshot) -> tuple[PoolDevice, ...]:
    return tuple(
        PoolDevice(inventory_id=seen.id, node=seen.node, state=seen.device.status.state)
        for seen in sorted(snapshot.cards, key=lambda seen: seen.id)
    )
