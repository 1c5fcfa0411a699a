"""Administrative changes of one card: assign, unassign, drain, retire.

Each is one patch of an annotation or label of the GPUDevice, as kubectl would write it, and the condition
under which the controllers have carried it out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from croupier.api import meta
from croupier.api.gpu.device import DRAIN, IGNORE, OCCUPIED, GPUDevice
from croupier.core.model.refusal import Refusal
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
    )


def drain(device: GPUDevice, reason: str) -> CardChange:
    return CardChange(
        {"annotations": {DRAIN: reason or "by hand"}},
        is_withdrawn,
        f"the pods that hold card {device.metadata.name}",
        f"card {device.metadata.name} is drained: no pod holds it, and it is not allocated.",
    )


def undo_drain(device: GPUDevice) -> CardChange:
    return CardChange(
        {"annotations": {DRAIN: None}},
        lambda card: DRAIN not in card.metadata.annotations,
        f"card {device.metadata.name} to become allocatable",
        f"card {device.metadata.name} is allocatable again.",
    )


def retire(device: GPUDevice) -> CardChange:
    return CardChange(
        {"labels": {IGNORE: "true"}, "annotations": {ASSIGNMENT: None}},
        lambda card: not pool_of(card) and meta.is_true(card.status.conditions, "Ignored"),
        f"card {device.metadata.name} to leave its pool",
        f"card {device.metadata.name} is retired; remove the label {IGNORE} to use it again.",
    )


def pool_of(device: GPUDevice) -> str:
    return device.status.pool_ref.name if device.status.pool_ref is not None else ""


def is_withdrawn(device: GPUDevice) -> bool:
    occupied = meta.condition(device.status.conditions, OCCUPIED)
    return occupied is not None and occupied.reason == "Withdrawn"
