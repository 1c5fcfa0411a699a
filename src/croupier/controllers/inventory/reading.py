"""What the inventory sees of a node: its labels, NodeFeatures and agent, and what it wrote of it before."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from croupier.api import nfd
from croupier.api.core_v1 import Lease, Node
from croupier.api.gpu import GPUDevice, GPUNodeInventory, report
from croupier.api.gpu import inventory as cards
from croupier.api.gpu.agent_report import CARDS, AgentReport, CardLine
from croupier.api.gpu.device import NODE_LABEL
from croupier.api.gpu.node import AGENT_SILENT, INCOMPLETE
from croupier.api.meta import Condition
from croupier.api.nfd import NodeFeature
from croupier.controllers.inventory.agent_reports import AgentReports
from croupier.controllers.watched import Watched
from croupier.core.cards import census, features, inventory
from croupier.core.cards.census import Placed, Plan
from croupier.core.cards.features import Features
from croupier.core.cards.inventory import Sighting
from croupier.core.pods import request
from croupier.kube.store import Index


@dataclass(frozen=True, slots=True)
class Sources:
    nodes: Watched[Node]
    leases: Watched[Lease]
    """Of the agents (`agent_report.LEASES`)."""
    features: Watched[NodeFeature]
    devices: Watched[GPUDevice]
    inventories: Watched[GPUNodeInventory]


@dataclass(frozen=True, slots=True)
class Look:
    """One node as it is now."""

    node: Node
    lease: Lease | None
    report: AgentReport | None
    told: tuple[NodeFeature, ...]
    devices: Mapping[str, GPUDevice]
    inventory: GPUNodeInventory | None

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def was_silent(self) -> bool:
        return self.inventory is not None and report.holds(self.inventory.status.conditions, AGENT_SILENT)

    @property
    def was_complete(self) -> Condition | None:
        """The condition that says so; None where nobody said so yet."""
        said = self.inventory.status.conditions if self.inventory is not None else ()
        return next((one for one in said if one.type == INCOMPLETE and one.status == "False"), None)

    def features(self) -> Features:
        return features.read(self.node.metadata.labels, nfd.scan(self.told))

    def sighting(self, found: Features) -> Sighting:
        told = cards.told(self.report) if self.lease is not None else None
        return inventory.see(told, found, report.offered(self.node).get(request.GPU, 0))

    def plan(self, sighting: Sighting, gone_before: datetime) -> Plan:
        known = (cards.known(one, gone_before=gone_before) for one in self.devices.values())
        return census.plan(self.name, sighting, known)

    def line(self, placed: Placed) -> CardLine | None:
        """What the agent says of a card, where it told of it."""
        if self.report is None or not placed.card.address:
            return None
        return next((one for one in self.report.cards if one.address == placed.card.address), None)

    def mark(self) -> tuple[object, ...]:
        """Equal for two looks that show the same; a heartbeat that tells nothing new changes nothing."""
        told = (one.metadata.resource_version for one in self.told)
        devices = ((name, one.metadata.resource_version) for name, one in self.devices.items())
        ours = self.inventory.metadata.resource_version if self.inventory is not None else None
        text = self.lease.metadata.annotations.get(CARDS, "") if self.lease is not None else None
        return (text, ours, self.node.metadata.resource_version, *told, *sorted(devices))


class Reading:
    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.reports = AgentReports(sources.leases)
        self._features = sources.features.store.index(lambda one: (nfd.node_of(one),))
        self._devices = sources.devices.store.index(node_of)

    @property
    def indexes(self) -> tuple[Index[Any, Any], ...]:
        """For whoever says how long they are kept."""
        return (*self.reports.indexes, self._features, self._devices)

    def of(self, name: str) -> Look | None:
        """None for a node that is not there."""
        node = self.sources.nodes.store.named(name)
        if node is None:
            return None
        return Look(
            node=node,
            lease=self.reports.lease(name),
            report=self.reports.of(name),
            told=tuple(sorted(self._features.get(name), key=lambda one: one.metadata.key)),
            devices={one.metadata.name: one for one in self._devices.get(name)},
            inventory=self.sources.inventories.store.named(name),
        )


def node_of(device: GPUDevice) -> Iterable[str]:
    """A GPUDevice gets its status after it was created; its label it has from the start."""
    node = device.status.node_name or device.metadata.labels.get(NODE_LABEL)
    return (node,) if node else ()
