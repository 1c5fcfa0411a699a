"""A node as its fitness is judged: from its labels, its cards, its agent's word, and its service pods."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from croupier.api.core_v1 import Node
from croupier.api.gpu import GPUDevice, GPUNodeInventory, pooling
from croupier.api.gpu.agent_report import AgentReport
from croupier.api.gpu.device import IGNORE
from croupier.controllers.cards import reading as cards_reading
from croupier.core import quantity
from croupier.core.nodes.bootstrap import DCGM, MISSING, NEVER, Kind, NodeFacts, Pulse, Service, Standing

PRODUCT: Final = "nvidia.com/gpu.product"
_SERVED: Final = ("nvidia.com/gpu", "nvidia.com/mig-")


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of one node; `now` and `since` by the monotonic clock."""

    inventory: GPUNodeInventory
    devices: tuple[GPUDevice, ...]
    now: float
    since: float
    node: Node | None = None
    report: AgentReport | None = None
    services: tuple[Service, ...] = ()
    pulse: Pulse | None = None
    images: Mapping[Kind, str] = field(default_factory=dict)


def facts(look: Look) -> NodeFacts:
    status, report = look.inventory.status, look.report
    told = {one.type: one for one in status.conditions}
    incomplete, unmanaged = told.get(pooling.INCOMPLETE), told.get("ManagedDisabled")
    return NodeFacts(
        managed=unmanaged is None or unmanaged.status != "True",
        cards=tuple(found for one in look.devices if (found := standing(one)) is not None),
        incomplete=incomplete.message if incomplete is not None and incomplete.status == "True" else "",
        agent=report is not None,
        driver=report.driver if report is not None else status.driver.version,
        toolkit=report.toolkit if report is not None else _reached(look),
        labelled=look.node is not None and bool(look.node.metadata.labels.get(PRODUCT)),
        monitored_by=_monitored_by(look),
        services=look.services,
        images=look.images,
        beats=look.pulse.beats if look.pulse is not None else 0,
        quiet=look.now - look.pulse.at if look.pulse is not None else NEVER,
        waited=NEVER if failing(look.inventory) else look.now - look.since,
    )


def standing(device: GPUDevice) -> Standing | None:
    """None of what is set aside."""
    if device.metadata.labels.get(IGNORE) == "true" or device.status.managed is False:
        return None
    held = cards_reading.occupancy(device) in ("Reserved", "InUse")
    return Standing(device.metadata.name, device.status.phase or "Discovered", held)


def word(report: AgentReport | None) -> Hashable:
    """What of a report concerns the fitness of its node."""
    if report is None:
        return None
    return report.driver, report.toolkit, report.monitored_by, report.beats


def beats_by_itself(look: Look) -> bool:
    """A heartbeat of a node without an agent: its exporter is ready."""
    return any(one.ready for one in look.services if one.kind == DCGM)


def failing(inventory: GPUNodeInventory) -> bool:
    """It was found wanting before: it is until somebody tells otherwise, whoever looks."""
    return any(one.type in MISSING and one.status == "True" for one in inventory.status.conditions)


def _monitored_by(look: Look) -> str:
    if look.report is not None:
        return look.report.monitored_by or "the agent of the node"
    return DCGM if beats_by_itself(look) else ""


def _reached(look: Look) -> bool:
    """Without an agent: somebody says so, or a device plugin serves cards, which it could not otherwise."""
    if look.inventory.status.driver.toolkit_installed:
        return True
    allocatable = look.node.status.allocatable if look.node is not None else {}
    return any(_some(amount) for name, amount in allocatable.items() if name.startswith(_SERVED))


def _some(written: str) -> bool:
    try:
        return quantity.parse(written).nanos > 0
    except quantity.InvalidQuantityError:
        return False
