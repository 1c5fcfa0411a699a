"""The status fields of GPUDevice and GPUNodeInventory that the card controller owns."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from croupier.api.gpu import GPUDevice, GPUNodeInventory
from croupier.api.gpu.device import MAX_DECLINED_MESSAGE, DeclinedPool, GPUDeviceStatus, PoolReference
from croupier.api.gpu.node import AssignedPool, GPUNodeInventoryStatus, NodePools, PendingPool
from croupier.controllers.shared import conditions
from croupier.core.cards import card_decision
from croupier.core.cards.card_decision import CONDITIONS, CardDecision
from croupier.core.cards.lifecycle import STATES
from croupier.core.pods.request_parser import POOL
from croupier.core.pools.assignment import PendingReason

MAX_LINES: Final = 64
UNASSIGNED: Final = "UnassignedDevice"


def desired_device(found: GPUDevice, decision: CardDecision, now: datetime) -> GPUDeviceStatus:
    return GPUDeviceStatus(
        phase=decision.phase,
        state=STATES[decision.phase],
        pool_ref=PoolReference(name=decision.pool, resource=resource(decision.pool))
        if decision.pool
        else None,
        declined=_declined(decision),
        auto_attach=decision.facts.managed and not decision.facts.ignored and decision.assignment.auto,
        observed_generation=found.metadata.generation,
        conditions=conditions.merge(card_decision.conditions(decision), found, now),
    )


def _declined(decision: CardDecision) -> DeclinedPool | None:
    declined = decision.declined
    if declined is None:
        return None
    return DeclinedPool(
        name=declined.pool,
        reason="OutOfSelector" if declined.reason == "OutOfSelector" else "Declined",
        message=declined.message[:MAX_DECLINED_MESSAGE],
    )


def current_device(found: GPUDevice) -> GPUDeviceStatus:
    status = found.status
    return GPUDeviceStatus(
        phase=status.phase,
        state=status.state,
        pool_ref=status.pool_ref,
        declined=status.declined,
        auto_attach=status.auto_attach,
        observed_generation=status.observed_generation,
        conditions=conditions.select(CONDITIONS, status.conditions),
    )


def desired_node(
    found: GPUNodeInventory, decisions: Mapping[str, CardDecision], held: Mapping[str, int], now: datetime
) -> GPUNodeInventoryStatus:
    """`held`: the held units by pool."""
    return GPUNodeInventoryStatus(
        pools=NodePools(assigned=_assigned(found, decisions, held, now), pending=_pending(decisions)),
        conditions=conditions.merge((card_decision.unassigned(decisions),), found, now),
    )


def current_node(found: GPUNodeInventory) -> GPUNodeInventoryStatus:
    status = found.status
    return GPUNodeInventoryStatus(
        pools=status.pools, conditions=conditions.select((UNASSIGNED,), status.conditions)
    )


def resource(pool: str) -> str:
    return f"{POOL}{pool}"


def _assigned(
    found: GPUNodeInventory, decisions: Mapping[str, CardDecision], held: Mapping[str, int], now: datetime
) -> tuple[AssignedPool, ...]:
    since = {pool.name: pool.since for pool in found.status.pools.assigned}
    members: dict[str, list[str]] = {}
    for card, decision in decisions.items():
        if decision.pool:
            members.setdefault(decision.pool, []).append(card)
    return tuple(
        AssignedPool(
            name=pool,
            resource=resource(pool),
            slots_reserved=held.get(pool, 0),
            since=since.get(pool) or now.replace(microsecond=0),
            inventory_ids=tuple(sorted(cards)),
        )
        for pool, cards in sorted(members.items())
    )[:MAX_LINES]


def _pending(decisions: Mapping[str, CardDecision]) -> tuple[PendingPool, ...]:
    """One entry for all cards with the same pool, reason and hint."""
    waiting: dict[tuple[str, PendingReason, bool, str], list[str]] = {}
    for card, decision in decisions.items():
        for pending in () if decision.pool else decision.assignment.pending:
            line = (pending.pool, pending.reason, pending.auto, pending.hint)
            waiting.setdefault(line, []).append(card)
    return tuple(
        PendingPool(
            pool=pool,
            reason=reason,
            auto_approved=auto,
            annotation_hint=hint,
            inventory_ids=tuple(sorted(cards)),
        )
        for (pool, reason, auto, hint), cards in sorted(waiting.items())
    )[:MAX_LINES]
