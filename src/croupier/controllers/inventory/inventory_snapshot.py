"""The inputs of the inventory controller: Node, NodeFeatures, agent report and existing objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from croupier.api import meta, nfd
from croupier.api.core_v1 import Lease, Node
from croupier.api.gpu import GPUDevice, GPUNodeInventory, convert_node
from croupier.api.gpu import convert_inventory as cards
from croupier.api.gpu.agent_report import REPORT_ANNOTATION, AgentReport, CardReport
from croupier.api.gpu.node import AGENT_SILENT, INCOMPLETE
from croupier.api.meta import Condition
from croupier.api.nfd import NodeFeature
from croupier.controllers.shared.agent_reports import AgentReports
from croupier.core.cards import census, features, inventory
from croupier.core.cards.census import DevicePlan, NamedCard
from croupier.core.cards.features import GpuFeatures
from croupier.core.cards.inventory import DiscoveredCards
from croupier.core.pods import request_parser
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import StoreIndex


@dataclass(frozen=True, slots=True)
class InventoryInformers:
    nodes: Informer[Node]
    leases: Informer[Lease]
    """The Leases of the agents (`agent_report.LEASES`)."""
    features: Informer[NodeFeature]
    devices: Informer[GPUDevice]
    inventories: Informer[GPUNodeInventory]


@dataclass(frozen=True, slots=True)
class InventorySnapshot:
    """The objects of one node."""

    node: Node
    lease: Lease | None
    report: AgentReport | None
    node_features: tuple[NodeFeature, ...]
    devices: Mapping[str, GPUDevice]
    inventory: GPUNodeInventory | None

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def was_silent(self) -> bool:
        return self.inventory is not None and meta.is_true(self.inventory.status.conditions, AGENT_SILENT)

    @property
    def was_complete(self) -> Condition | None:
        """The condition InventoryIncomplete if its status is False."""
        recorded = self.inventory.status.conditions if self.inventory is not None else ()
        complete = (cond for cond in recorded if cond.type == INCOMPLETE and cond.status == "False")
        return next(complete, None)

    def features(self) -> GpuFeatures:
        return features.read(self.node.metadata.labels, nfd.scan(self.node_features))

    def discovered(self, found: GpuFeatures) -> DiscoveredCards:
        reported = cards.reported_cards(self.report) if self.lease is not None else None
        return inventory.discover(
            reported, found, convert_node.allocatable_gpus(self.node).get(request_parser.GPU, 0)
        )

    def plan(self, discovered: DiscoveredCards, gone_before: datetime) -> DevicePlan:
        known = (cards.recorded_card(device, gone_before=gone_before) for device in self.devices.values())
        return census.plan(self.name, discovered, known)

    def line(self, placed: NamedCard) -> CardReport | None:
        """The card in the agent's report, if it is reported."""
        if self.report is None or not placed.card.address:
            return None
        return next((card for card in self.report.cards if card.address == placed.card.address), None)

    def fingerprint(self) -> tuple[object, ...]:
        """Equal for snapshots with the same content; a heartbeat alone does not change it."""
        features = (feature.metadata.resource_version for feature in self.node_features)
        devices = ((name, device.metadata.resource_version) for name, device in self.devices.items())
        ours = self.inventory.metadata.resource_version if self.inventory is not None else None
        text = self.lease.metadata.annotations.get(REPORT_ANNOTATION, "") if self.lease is not None else None
        return (text, ours, self.node.metadata.resource_version, *features, *sorted(devices))


class InventoryReader:
    def __init__(self, sources: InventoryInformers) -> None:
        self.sources = sources
        self.reports = AgentReports(sources.leases)
        self._features = sources.features.store.index(lambda feature: (nfd.node_of(feature),))
        self._devices = sources.devices.store.index(node_of)

    @property
    def indexes(self) -> tuple[StoreIndex[Any, Any], ...]:
        """The indexes that the caller must keep up to date."""
        return (*self.reports.indexes, self._features, self._devices)

    def of(self, name: str) -> InventorySnapshot | None:
        """The snapshot of a node; None if the Node does not exist."""
        node = self.sources.nodes.store.named(name)
        if node is None:
            return None
        return InventorySnapshot(
            node=node,
            lease=self.reports.lease(name),
            report=self.reports.of(name),
            node_features=tuple(sorted(self._features.get(name), key=lambda feature: feature.metadata.key)),
            devices={device.metadata.name: device for device in self._devices.get(name)},
            inventory=self.sources.inventories.store.named(name),
        )


def node_of(device: GPUDevice) -> Iterable[str]:
    return (device.node_name,) if device.node_name else ()
