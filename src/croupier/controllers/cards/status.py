"""What is written about cards and their pools, as the fields of one writer."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from croupier.api.gpu import GPUDevice, GPUNodeInventory
from croupier.api.gpu.device import STATE_OF_PHASE, GPUDeviceStatus, PoolReference
from croupier.api.gpu.node import AssignedPool, GPUNodeInventoryStatus, NodePools, PendingPool
from croupier.api.gpu.pool import RESOURCE_PREFIX
from croupier.controllers import conditions
from croupier.core.cards import course
from croupier.core.cards.course import CONDITIONS, Course
from croupier.kube.resource import Raw

MOST_LINES: Final = 64
UNASSIGNED: Final = "UnassignedDevice"


def device(found: GPUDevice, way: Course, now: datetime) -> GPUDeviceStatus:
    """The fields of a GPUDevice's status that are ours, as they shall be."""
    return GPUDeviceStatus(
        phase=way.phase,
        state=STATE_OF_PHASE[way.phase],
        pool_ref=PoolReference(name=way.pool, resource=resource(way.pool)) if way.pool else None,
        auto_attach=way.facts.managed and not way.facts.ignored and way.assignment.auto,
        conditions=conditions.kept(course.conditions(way), found.status.conditions, now),
    )


def device_now(found: GPUDevice) -> GPUDeviceStatus:
    """The same fields as they are."""
    status = found.status
    return GPUDeviceStatus(
        phase=status.phase,
        state=status.state,
        pool_ref=status.pool_ref,
        auto_attach=status.auto_attach,
        conditions=conditions.of(CONDITIONS, status.conditions),
    )


def node(
    found: GPUNodeInventory, ways: Mapping[str, Course], held: Mapping[str, int], now: datetime
) -> GPUNodeInventoryStatus:
    """The fields of a GPUNodeInventory's status that are ours; `held` are units by pool."""
    return GPUNodeInventoryStatus(
        pools=NodePools(assigned=_assigned(found, ways, held, now), pending=_pending(ways)),
        conditions=conditions.kept((course.unassigned(ways),), found.status.conditions, now),
    )


def node_now(found: GPUNodeInventory) -> GPUNodeInventoryStatus:
    status = found.status
    return GPUNodeInventoryStatus(
        pools=status.pools, conditions=conditions.of((UNASSIGNED,), status.conditions)
    )


def applied(found: GPUDevice | GPUNodeInventory, status: msgspec.Struct) -> Raw:
    """To be applied to this very object, not to another of its name."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return {"metadata": {"name": found.metadata.name, "uid": found.metadata.uid}, "status": fields}


def resource(pool: str) -> str:
    return f"{RESOURCE_PREFIX}{pool}"


def _assigned(
    found: GPUNodeInventory, ways: Mapping[str, Course], held: Mapping[str, int], now: datetime
) -> tuple[AssignedPool, ...]:
    since = {one.name: one.since for one in found.status.pools.assigned}
    return tuple(
        AssignedPool(
            name=pool,
            resource=resource(pool),
            slots_reserved=held.get(pool, 0),
            since=since.get(pool) or now.replace(microsecond=0),
        )
        for pool in sorted({way.pool for way in ways.values() if way.pool})
    )[:MOST_LINES]


def _pending(ways: Mapping[str, Course]) -> tuple[PendingPool, ...]:
    """One line for all cards that wait for the same."""
    lines = {
        (one.pool, one.reason, one.auto, one.hint)
        for way in ways.values()
        if not way.pool
        for one in way.assignment.pending
    }
    return tuple(
        PendingPool(pool=pool, reason=reason, auto_approved=auto, annotation_hint=hint)
        for pool, reason, auto, hint in sorted(lines)
    )[:MOST_LINES]
