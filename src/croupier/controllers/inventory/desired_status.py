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
from croupier.api.gpu import convert_inventory as cards
from croupier.api.gpu.device import (
    DRAIN,
    IDLE_MARK,
    INDEX_LABEL,
    NODE_LABEL,
    RETIRED,
    VANISHED,
    GPUDeviceStatus,
)
from croupier.api.gpu.node import AGENT_SILENT, INCOMPLETE, MANAGED_DISABLED, Driver, GPUNodeInventoryStatus
from croupier.api.meta import ObjectMeta, OwnerReference
from croupier.controllers.inventory.inventory_snapshot import InventorySnapshot
from croupier.controllers.shared import conditions
from croupier.core.cards.census import DevicePlan, NamedCard
from croupier.core.cards.features import GpuFeatures
from croupier.core.cards.inventory import DiscoveredCards
from croupier.core.model import card_name as naming
from croupier.core.model.condition import DesiredCondition
from croupier.core.pools.assignment import ASSIGNMENT

CONDITIONS: Final = frozenset({INCOMPLETE, MANAGED_DISABLED, AGENT_SILENT})
"""The owned condition types of a GPUNodeInventory."""
_INHERITED: Final = (ASSIGNMENT, DRAIN, RETIRED, IDLE_MARK)
"""The annotations of a card that a new record of the same card keeps."""
_MAX_MESSAGE: Final = 4096
_VANISHED_CONDITION: Final = DesiredCondition(
    VANISHED, "True", "NotOnTheBus", "the card is gone from its node"
)


@dataclass(frozen=True, slots=True)
class NodeManagement:
    """Which nodes are managed: settings `managedNodes`."""

    label: str = "gpu.deckhouse.io/enabled"
    by_default: bool = True

    def judge(self, node: Node) -> DesiredCondition:
        value = node.metadata.labels.get(self.label)
        if value is None and not self.by_default:
            message = f"the node has no label {self.label}=true"
            return DesiredCondition(MANAGED_DISABLED, "True", "NotEnabled", message)
        if value is not None and (value == "false" or not (self.by_default or value == "true")):
            return DesiredCondition(
                MANAGED_DISABLED, "True", "DisabledByLabel", f"the node has {self.label}={value}"
            )
        return DesiredCondition(MANAGED_DISABLED, "False", "Managed", "")


def agent_silent(silent: bool | None, timeout: float) -> DesiredCondition:
    """The condition AgentSilent; `silent` is None if the node has no agent."""
    if silent is None:
        return DesiredCondition(AGENT_SILENT, "False", "NoAgent", "no agent has reported from this node")
    if not silent:
        return DesiredCondition(AGENT_SILENT, "False", "Heard", "")
    message = (
        f"the node's agent has sent no heartbeat for more than {timeout:g} s;"
        " its cards are not allocated until it does"
    )
    return DesiredCondition(AGENT_SILENT, "True", "NoHeartbeat", message)


def incomplete(discovered: DiscoveredCards) -> DesiredCondition:
    """The condition InventoryIncomplete."""
    reason = "NodeFeatureMissing" if discovered.troubles else discovered.reason
    message = "; ".join(discovered.troubles) or discovered.message
    if reason == "InventorySynced":
        return DesiredCondition(INCOMPLETE, "False", reason, "")
    return DesiredCondition(INCOMPLETE, "True", reason, message[:_MAX_MESSAGE])


def node_status(
    found: GPUNodeInventory,
    plan: DevicePlan,
    *,
    driver: Driver,
    judged: tuple[DesiredCondition, ...],
    now: datetime,
) -> GPUNodeInventoryStatus:
    return GPUNodeInventoryStatus(
        hw=cards.node_hardware(plan.cards),
        driver=driver,
        observed_generation=found.metadata.generation,
        conditions=conditions.merge(judged, found, now),
    )


def current_node_status(found: GPUNodeInventory) -> GPUNodeInventoryStatus:
    status = found.status
    ours = conditions.select(CONDITIONS, status.conditions)
    return GPUNodeInventoryStatus(
        hw=status.hw,
        driver=status.driver,
        observed_generation=status.observed_generation,
        conditions=ours,
    )


def card_status(
    snapshot: InventorySnapshot, placed: NamedCard, found: GpuFeatures, *, managed: bool, now: datetime
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
        idle_since=was.idle_since,
        strangers=was.strangers,
        enforcement=was.enforcement,
    )
    if line is not None:
        health = cards.merge_health(was.health, line.health, now)
        return replace(
            status,
            hardware=cards.hardware_from_report(placed.card, line.types),
            health=health,
            cut=cards.merge_partitioning(was.cut, line.cut),
            idle_since=line.idle_since,
            strangers=line.strangers,
            enforcement=line.enforcement,
        )
    if was.hardware is None or naming.is_indexed(placed.id):
        return replace(status, hardware=cards.hardware_from_labels(placed.card, found))
    return status


def gone_status(before: GPUDevice, now: datetime) -> GPUDeviceStatus:
    """The desired fields of the GPUDevice of a vanished card."""
    gone = conditions.merge([_VANISHED_CONDITION], before, now)
    health = cards.vanished_health(before.status.health, now)
    return replace(current_card_status(before), health=health, conditions=gone)


def current_card_status(found: GPUDevice) -> GPUDeviceStatus:
    status = found.status
    return GPUDeviceStatus(
        node_name=status.node_name,
        inventory_id=status.inventory_id,
        managed=status.managed,
        hardware=status.hardware,
        health=status.health,
        cut=status.cut,
        idle_since=status.idle_since,
        strangers=status.strangers,
        enforcement=status.enforcement,
        conditions=conditions.select({VANISHED}, status.conditions),
    )


def owner(node: Node) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)


def card_meta(snapshot: InventorySnapshot, placed: NamedCard) -> ObjectMeta:
    """The owned metadata of a GPUDevice."""
    node = naming.shortened(snapshot.name, naming.LABEL_LIMIT)
    labels = {NODE_LABEL: node, INDEX_LABEL: str(placed.card.index)}
    return ObjectMeta(name=placed.id, labels=labels, owner_references=(owner(snapshot.node),))


def inherited(replaced: GPUDevice | None, own: ObjectMeta) -> ObjectMeta:
    """The metadata of a new GPUDevice, with labels and annotations of the GPUDevice that it replaces."""
    if replaced is None:
        return own
    old = replaced.metadata
    kept = {key: value for key, value in old.annotations.items() if key in _INHERITED}
    return replace(own, labels={**old.labels, **own.labels}, annotations=kept)


def has_metadata(found: ObjectMeta, wanted: ObjectMeta) -> bool:
    """Whether the object has the owned metadata."""
    uids = {reference.uid for reference in found.owner_references}
    owned = all(reference.uid in uids for reference in wanted.owner_references)
    return owned and all(found.labels.get(key) == value for key, value in wanted.labels.items())


def apply_body(meta: ObjectMeta, status: msgspec.Struct | None = None) -> dict[str, Any]:
    """The body of a server-side apply."""
    written: dict[str, Any] = {"metadata": msgspec.to_builtins(meta)}
    if status is not None:
        written["status"] = msgspec.to_builtins(status)
    return written
