"""The fields of GPUDevice and GPUNodeInventory that the inventory controller owns.

Other controllers write to the same status, so each write is a server-side apply of the owned fields.
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
"""The owned condition types of a GPUNodeInventory."""
_MESSAGE: Final = 4096
_GONE: Final = Judged(VANISHED, "True", "NotOnTheBus", "the card is gone from its node")


@dataclass(frozen=True, slots=True)
class Management:
    """Which nodes are managed: settings `managedNodes`."""

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
    """Whether the agent of a node is silent; None if the node has no agent."""

    silent: bool | None = None
    patience: float = 0.0

    def judge(self) -> Judged:
        if self.silent is None:
            return Judged(AGENT_SILENT, "False", "NoAgent", "no agent has reported from this node")
        if not self.silent:
            return Judged(AGENT_SILENT, "False", "Heard", "")
        message = (
            f"the node's agent has sent no heartbeat for more than {self.patience:g} s;"
            " its cards are not allocated until it does"
        )
        return Judged(AGENT_SILENT, "True", "NoHeartbeat", message)


def incomplete(sighting: Sighting, plan: Plan) -> Judged:
    """The condition InventoryIncomplete, from troubles with labels and with names."""
    troubles = (*sighting.troubles, *plan.troubles)
    reason = "NodeFeatureMissing" if troubles else sighting.reason
    message = "; ".join(troubles) or sighting.message
    if reason == "InventorySynced":
        return Judged(INCOMPLETE, "False", reason, "")
    return Judged(INCOMPLETE, "True", reason, message[:_MESSAGE])


def node_status(
    snapshot: Look, plan: Plan, found: Features, judged: tuple[Judged, ...], now: datetime
) -> GPUNodeInventoryStatus:
    """The desired fields of a GPUNodeInventory."""
    old = snapshot.inventory.status.conditions if snapshot.inventory is not None else ()
    return GPUNodeInventoryStatus(
        hw=cards.listed(plan.cards),
        driver=cards.driver(snapshot.report, found),
        conditions=conditions.kept(judged, old, now),
    )


def node_status_now(found: GPUNodeInventory) -> GPUNodeInventoryStatus:
    """The current fields."""
    status = found.status
    ours = conditions.of(CONDITIONS, status.conditions)
    return GPUNodeInventoryStatus(hw=status.hw, driver=status.driver, conditions=ours)


def card_status(
    snapshot: Look, placed: Placed, found: Features, *, managed: bool, now: datetime
) -> GPUDeviceStatus:
    """The desired fields of the GPUDevice of a card that is present.

    Fields that only the agent knows keep their last reported values.
    """
    before = snapshot.devices.get(placed.id)
    was, line = before.status if before is not None else GPUDeviceStatus(), snapshot.line(placed)
    status = GPUDeviceStatus(
        node_name=snapshot.name,
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
    """The desired fields of the GPUDevice of a vanished card."""
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


def card_meta(snapshot: Look, placed: Placed) -> ObjectMeta:
    """The owned metadata of a GPUDevice."""
    labels = {NODE_LABEL: snapshot.name, INDEX_LABEL: str(placed.card.index)}
    return ObjectMeta(name=placed.id, labels=labels, owner_references=(owner(snapshot.node),))


def inherited(replaced: GPUDevice | None, own: ObjectMeta) -> ObjectMeta:
    """The metadata of a new GPUDevice, with labels and annotations of the GPUDevice that it replaces."""
    if replaced is None:
        return own
    old = replaced.metadata
    kept = {key: value for key, value in old.annotations.items() if key in (ASSIGNMENT, DRAIN)}
    return replace(own, labels={**old.labels, **own.labels}, annotations=kept)


def has(found: ObjectMeta, wanted: ObjectMeta) -> bool:
    """Whether the object has the owned metadata."""
    uids = {reference.uid for reference in found.owner_references}
    owned = all(reference.uid in uids for reference in wanted.owner_references)
    return owned and all(found.labels.get(key) == value for key, value in wanted.labels.items())


def body(meta: ObjectMeta, status: msgspec.Struct | None = None) -> dict[str, Any]:
    """The body of a server-side apply."""
    written: dict[str, Any] = {"metadata": msgspec.to_builtins(meta)}
    if status is not None:
        written["status"] = msgspec.to_builtins(status)
    return written
