"""What the inventory writes of a node: its fields of GPUDevice and GPUNodeInventory.

Others write to the same status, so each write is a server-side apply of the fields that are ours.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from croupier.api.core_v1 import Node
from croupier.api.gpu import GPUDevice, GPUNodeInventory
from croupier.api.gpu import inventory as cards
from croupier.api.gpu.device import (
    ASSIGNMENT,
    DRAIN,
    INDEX_LABEL,
    NODE_LABEL,
    VANISHED,
    GPUDeviceStatus,
)
from croupier.api.gpu.node import AGENT_SILENT, INCOMPLETE, MANAGED_DISABLED, GPUNodeInventoryStatus
from croupier.api.meta import ObjectMeta, OwnerReference
from croupier.controllers import conditions
from croupier.controllers.inventory.reading import Look
from croupier.core.cards import card as naming
from croupier.core.cards.census import Placed, Plan
from croupier.core.cards.features import Features
from croupier.core.cards.inventory import Sighting
from croupier.core.nodes.bootstrap import Judged

CONDITIONS: Final = frozenset({INCOMPLETE, MANAGED_DISABLED, AGENT_SILENT})
"""Those of a GPUNodeInventory that are written here."""
_MESSAGE: Final = 4096
_GONE: Final = Judged(VANISHED, "True", "NotOnTheBus", "the card is gone from its node")


@dataclass(frozen=True, slots=True)
class Management:
    """Which nodes are ours: settings `managedNodes`."""

    label: str = "gpu.deckhouse.io/enabled"
    by_default: bool = True

    def judge(self, node: Node) -> Judged:
        value = node.metadata.labels.get(self.label)
        if value is None and not self.by_default:
            message = f"the node has no label {self.label}=true"
            return Judged(MANAGED_DISABLED, "True", "NotEnabled", message)
        if value is not None and (value == "false" or not (self.by_default or value == "true")):
            return Judged(MANAGED_DISABLED, "True", "DisabledByLabel", f"the node has {self.label}={value}")
        return Judged(MANAGED_DISABLED, "False", "Managed", "")


@dataclass(frozen=True, slots=True)
class Silence:
    """Whether the node's agent is heard; None where there is none."""

    silent: bool | None = None
    patience: float = 0.0

    def judge(self) -> Judged:
        if self.silent is None:
            return Judged(AGENT_SILENT, "False", "NoAgent", "no agent has reported from this node")
        if not self.silent:
            return Judged(AGENT_SILENT, "False", "Heard", "")
        message = (
            f"the node's agent has not been heard for more than {self.patience:g} s;"
            " its cards are given to nobody until it is"
        )
        return Judged(AGENT_SILENT, "True", "NoHeartbeat", message)


def incomplete(sighting: Sighting, plan: Plan) -> Judged:
    """Troubles with names are found later than those with labels; to people they are the same."""
    troubles = (*sighting.troubles, *plan.troubles)
    reason = "NodeFeatureMissing" if troubles else sighting.reason
    message = "; ".join(troubles) or sighting.message
    if reason == "InventorySynced":
        return Judged(INCOMPLETE, "False", reason, "")
    return Judged(INCOMPLETE, "True", reason, message[:_MESSAGE])


def node_status(
    look: Look, plan: Plan, found: Features, judged: tuple[Judged, ...], now: datetime
) -> GPUNodeInventoryStatus:
    """Our fields of a GPUNodeInventory as they shall be."""
    old = look.inventory.status.conditions if look.inventory is not None else ()
    return GPUNodeInventoryStatus(
        hw=cards.listed(plan.cards),
        driver=cards.driver(look.report, found),
        conditions=conditions.kept(judged, old, now),
    )


def node_status_now(found: GPUNodeInventory) -> GPUNodeInventoryStatus:
    """Our fields as they are."""
    status = found.status
    ours = conditions.of(CONDITIONS, status.conditions)
    return GPUNodeInventoryStatus(hw=status.hw, driver=status.driver, conditions=ours)


def card_status(
    look: Look, placed: Placed, found: Features, *, managed: bool, now: datetime
) -> GPUDeviceStatus:
    """Our fields of the GPUDevice of a card that is there.

    What only the agent knows stays as it last told it: labels know less.
    """
    before = look.devices.get(placed.id)
    was, line = before.status if before is not None else GPUDeviceStatus(), look.line(placed)
    status = GPUDeviceStatus(
        node_name=look.name,
        inventory_id=placed.id,
        managed=managed,
        hardware=was.hardware,
        health=was.health,
        cut=was.cut,
    )
    if line is not None:
        health = cards.health(was.health, line.health, now)
        cut = cards.cut(was.cut, line.cut)
        return replace(status, hardware=cards.hardware(line), health=health, cut=cut)
    if was.hardware is None or naming.is_indexed(placed.id):
        return replace(status, hardware=cards.described(placed, found))
    return status


def gone_status(before: GPUDevice, now: datetime) -> GPUDeviceStatus:
    """Our fields of the GPUDevice of a card that is gone."""
    gone = conditions.kept([_GONE], before.status.conditions, now)
    health = cards.lost(before.status.health, now)
    return replace(card_status_now(before), health=health, conditions=gone)


def card_status_now(found: GPUDevice) -> GPUDeviceStatus:
    status = found.status
    return GPUDeviceStatus(
        node_name=status.node_name,
        inventory_id=status.inventory_id,
        managed=status.managed,
        hardware=status.hardware,
        health=status.health,
        cut=status.cut,
        conditions=conditions.of({VANISHED}, status.conditions),
    )


def owner(node: Node) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)


def card_meta(look: Look, placed: Placed) -> ObjectMeta:
    """Our part of a GPUDevice's metadata."""
    labels = {NODE_LABEL: look.name, INDEX_LABEL: str(placed.card.index)}
    return ObjectMeta(name=placed.id, labels=labels, owner_references=(owner(look.node),))


def inherited(forerunner: GPUDevice | None, own: ObjectMeta) -> ObjectMeta:
    """A new GPUDevice's metadata with what people put on the one that stood for the same card."""
    if forerunner is None:
        return own
    old = forerunner.metadata
    notes = {key: value for key, value in old.annotations.items() if key in (ASSIGNMENT, DRAIN)}
    return replace(own, labels={**old.labels, **own.labels}, annotations=notes)


def has(found: ObjectMeta, wanted: ObjectMeta) -> bool:
    """Our part is there as it shall be."""
    uids = {one.uid for one in found.owner_references}
    owned = all(one.uid in uids for one in wanted.owner_references)
    return owned and all(found.labels.get(key) == value for key, value in wanted.labels.items())


def body(meta: ObjectMeta, status: msgspec.Struct | None = None) -> dict[str, Any]:
    """For a server-side apply: what is not set is not ours."""
    written: dict[str, Any] = {"metadata": msgspec.to_builtins(meta)}
    if status is not None:
        written["status"] = msgspec.to_builtins(status)
    return written
