"""The inputs of a bootstrap decision: labels, cards, agent report and service pods of a node."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from croupier.api.core_v1 import Node
from croupier.api.gpu import GPUDevice, GPUNodeInventory, convert_pool
from croupier.api.gpu.agent_report import AgentReport
from croupier.api.gpu.device import IGNORE
from croupier.api.gpu.node import INCOMPLETE
from croupier.core import quantity
from croupier.core.nodes.bootstrap import (
    DCGM,
    MISSING,
    NEVER,
    BootstrapCard,
    BootstrapFacts,
    HeartbeatCount,
    ServiceKind,
    ServicePod,
)

PRODUCT: Final = "nvidia.com/gpu.product"
_SERVED: Final = ("nvidia.com/gpu", "nvidia.com/mig-")


@dataclass(frozen=True, slots=True)
class BootstrapSnapshot:
    """The objects of one node; `now` and `since` are monotonic times."""

    inventory: GPUNodeInventory
    devices: tuple[GPUDevice, ...]
    now: float
    since: float
    node: Node | None = None
    report: AgentReport | None = None
    services: tuple[ServicePod, ...] = ()
    pulse: HeartbeatCount | None = None
    images: Mapping[ServiceKind, str] = field(default_factory=dict)


def facts(snapshot: BootstrapSnapshot) -> BootstrapFacts:
    status, report = snapshot.inventory.status, snapshot.report
    by_type = {condition.type: condition for condition in status.conditions}
    incomplete, unmanaged = by_type.get(INCOMPLETE), by_type.get("ManagedDisabled")
    return BootstrapFacts(
        managed=unmanaged is None or unmanaged.status != "True",
        cards=tuple(card for device in snapshot.devices if (card := bootstrap_card(device)) is not None),
        incomplete=incomplete.message if incomplete is not None and incomplete.status == "True" else "",
        agent=report is not None,
        driver=report.driver if report is not None else status.driver.version,
        toolkit=report.toolkit if report is not None else _has_toolkit(snapshot),
        labelled=snapshot.node is not None and bool(snapshot.node.metadata.labels.get(PRODUCT)),
        monitored_by=_monitored_by(snapshot),
        services=snapshot.services,
        images=snapshot.images,
        beats=snapshot.pulse.beats if snapshot.pulse is not None else 0,
        since_heartbeat=snapshot.now - snapshot.pulse.at if snapshot.pulse is not None else NEVER,
        observed_for=NEVER if failing(snapshot.inventory) else snapshot.now - snapshot.since,
    )


def bootstrap_card(device: GPUDevice) -> BootstrapCard | None:
    """The card of a GPUDevice; None if it is set aside."""
    if device.metadata.labels.get(IGNORE) == "true" or device.status.managed is False:
        return None
    held = convert_pool.occupancy(device) in ("Reserved", "InUse")
    return BootstrapCard(device.metadata.name, device.status.phase or "Discovered", held)


def relevant_fields(report: AgentReport | None) -> Hashable:
    """The fields of a report that the bootstrap decision uses."""
    if report is None:
        return None
    return report.driver, report.toolkit, report.monitored_by, report.beats


def exporter_ready(services: Iterable[ServicePod]) -> bool:
    """The exporter is ready, which counts as a heartbeat of a node without an agent."""
    return any(service.ready for service in services if service.kind == DCGM)


def failing(inventory: GPUNodeInventory) -> bool:
    """The node is recorded as failing; it stays so until new information arrives, also after a restart."""
    return any(cond.type in MISSING and cond.status == "True" for cond in inventory.status.conditions)


def _monitored_by(snapshot: BootstrapSnapshot) -> str:
    if snapshot.report is not None:
        return snapshot.report.monitored_by or "the agent of the node"
    return DCGM if exporter_ready(snapshot.services) else ""


def _has_toolkit(snapshot: BootstrapSnapshot) -> bool:
    """Without an agent: the inventory says so, or a device plugin serves cards, which needs the toolkit."""
    if snapshot.inventory.status.driver.toolkit_installed:
        return True
    allocatable = snapshot.node.status.allocatable if snapshot.node is not None else {}
    return any(_some(amount) for name, amount in allocatable.items() if name.startswith(_SERVED))


def _some(written: str) -> bool:
    try:
        return quantity.parse(written).nanos > 0
    except quantity.InvalidQuantityError:
        return False
