"""Administrative changes of one card: assign, unassign, drain, retire.

Each is one patch of an annotation or label of the GPUDevice, as kubectl would write it, and the condition
under which the controllers have carried it out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from croupier.api import meta
from croupier.api.gpu.device import DRAIN, IGNORE, OCCUPIED, RETIRED, WITHDRAWALS, GPUDevice
from croupier.api.gpu.node import GPUNodeInventory
from croupier.api.gpu.pool import GPUPool
from croupier.core.model.refusal import Refusal
from croupier.core.model.withheld import BY_HAND
from croupier.core.pools.assignment import ASSIGNMENT


@dataclass(frozen=True, slots=True)
class CardChange:
    """A metadata patch of a card, and the condition under which it is complete."""

    patch: dict[str, Any]
    done: Callable[[GPUDevice], bool]
    waiting_for: str
    """Completes the sentence "Waiting for ..."."""
    done_message: str
    """Printed on completion."""
    counted_in: str = ""
    """The pool whose status must list the card as well."""
    needs_free: bool = False
    """The change waits until no pod holds the card."""


def assign(device: GPUDevice, pool: str) -> CardChange | Refusal:
    name, now = device.metadata.name, device.metadata.annotations.get(ASSIGNMENT, "")
    if now not in ("", pool):
        return Refusal(
            f"card {name} is assigned to pool {now}: run `croupier unassign` first "
            "and wait until the card is Unassigned"
        )
    return CardChange(
        {"annotations": {ASSIGNMENT: pool}},
        lambda card: pool_of(card) == pool and card.status.state in ("Assigned", "Reserved"),
        f"card {name} to join pool {pool}",
        f"card {name} is assigned to pool {pool}.",
        counted_in=pool,
    )


def unassign(device: GPUDevice) -> CardChange:
    return CardChange(
        {"annotations": {ASSIGNMENT: None}},
        lambda card: not pool_of(card) and card.status.state in ("Unassigned", "Faulted"),
        f"card {device.metadata.name} to leave its pool",
        f"card {device.metadata.name} is not assigned to a pool.",
        needs_free=True,
    )


def drain(device: GPUDevice, reason: str) -> CardChange:
    return CardChange(
        {"annotations": {DRAIN: reason or BY_HAND}},
        is_withdrawn,
        f"the pods that hold card {device.metadata.name}",
        f"card {device.metadata.name} is drained: no pod holds it, and it is not allocated.",
        needs_free=True,
    )


def undo_drain(device: GPUDevice) -> CardChange:
    return CardChange(
        {"annotations": {DRAIN: None}},
        lambda card: DRAIN not in card.metadata.annotations,
        f"card {device.metadata.name} to become allocatable",
        f"card {device.metadata.name} is allocatable again.",
    )


def retire(device: GPUDevice, reason: str) -> CardChange:
    return CardChange(
        {"labels": {IGNORE: "true"}, "annotations": {ASSIGNMENT: None, RETIRED: reason or BY_HAND}},
        lambda card: not pool_of(card) and meta.is_true(card.status.conditions, "Ignored"),
        f"card {device.metadata.name} to leave its pool",
        f"card {device.metadata.name} is retired; remove the label {IGNORE} to use it again.",
        needs_free=True,
    )


def undo_retire(device: GPUDevice) -> CardChange:
    return CardChange(
        {"labels": {IGNORE: None}, "annotations": {RETIRED: None}},
        lambda card: (
            IGNORE not in card.metadata.labels and not meta.is_true(card.status.conditions, "Ignored")
        ),
        f"card {device.metadata.name} to be usable again",
        f"card {device.metadata.name} is usable again; assign it to a pool.",
    )


def pool_of(device: GPUDevice) -> str:
    return device.status.pool_ref.name if device.status.pool_ref is not None else ""


def is_withdrawn(device: GPUDevice) -> bool:
    occupied = meta.condition(device.status.conditions, OCCUPIED)
    return occupied is not None and occupied.reason == "Withdrawn"


def is_complete(change: CardChange, device: GPUDevice, pool: GPUPool | None) -> bool:
    """Whether the controllers have carried out the change; `pool` is the pool `counted_in`."""
    return change.done(device) and (not change.counted_in or is_in_pool_status(device, pool))


def is_in_pool_status(device: GPUDevice, pool: GPUPool | None) -> bool:
    """Whether the pool's status lists the card; until then a pod that requests the pool would be refused."""
    if pool is None or is_withdrawn(device):
        return False
    status = pool.status
    known = device.status.inventory_id in {member.inventory_id for member in status.devices}
    return known and status.capacity is not None and status.capacity.total > 0


def pending_reason(device: GPUDevice, pool: GPUPool | None, inventory: GPUNodeInventory | None) -> str:
    """Why a change is not complete, from the conditions of the card, its pool and its node.

    `pool` is the pool that the change is about, so no other pool's reason is given.
    """
    waiting = (meta.condition(device.status.conditions, kind) for kind in WITHDRAWALS)
    if (withdrawal := next(filter(None, waiting), None)) is not None and withdrawal.status != "True":
        return withdrawal.message
    if not pool_of(device) and (declined := declined_by(device, pool)):
        return declined
    occupied = meta.condition(device.status.conditions, OCCUPIED)
    if occupied is not None and occupied.status == "True":
        return occupied.message or f"a pod holds it ({occupied.reason})"
    ready = meta.condition(device.status.conditions, "ReadyForPooling")
    if ready is not None and ready.status != "True":
        return ready.message or ready.reason
    if name := pool_of(device):
        return _pool_problem(pool) or f"the status of pool {name} does not list it yet"
    return _without_pool(device, pool, inventory)


def _without_pool(device: GPUDevice, pool: GPUPool | None, inventory: GPUNodeInventory | None) -> str:
    """Why the card has no pool, as the pool that was asked for says it."""
    if inventory is None:
        return "no controller has processed it yet; is `croupier manager` running?"
    candidates = pool.status.candidates if pool is not None else ()
    if reason := next((item.reason for item in candidates if item.inventory_id == device.card_id), ""):
        return reason
    asked = pool.metadata.name if pool is not None else ""
    pending = (item for item in inventory.status.pools.pending if device.card_id in item.inventory_ids)
    reasons = "; ".join(f"{item.reason} {item.pool}".strip() for item in pending if item.pool in ("", asked))
    return reasons or "no controller has processed it yet"


def declined_by(device: GPUDevice, pool: GPUPool | None) -> str:
    """Why the pool does not take the card; empty if it has not said so."""
    declined = device.status.declined
    if pool is None or declined is None or declined.name != pool.metadata.name:
        return ""
    return f"{declined.message}; the card serves as before until the pool takes it"


def _pool_problem(pool: GPUPool | None) -> str:
    conditions = pool.status.conditions if pool is not None else ()
    problems = (
        condition.message
        for condition in conditions
        if condition.type in ("Maintenance", "Misconfigured") and condition.status == "True"
    )
    return next(problems, "")
