"""The bootstrap controller: whether each node is ready to serve its cards.

One key is one node. The controller reports what is missing (driver, toolkit, labels, monitoring), starts the
service pods that are needed and configured, and stops those that are not needed any more. A node that is not
ready is reconciled every 15 seconds, a ready node every minute. A heartbeat alone triggers no reconcile.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from croupier.api.core_v1 import Lease, Node, Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory
from croupier.api.kinds import GPU_NODE_INVENTORIES, PODS
from croupier.capacity import index_keys
from croupier.controllers.bootstrap import node_snapshot
from croupier.controllers.bootstrap import status as bootstrap_status
from croupier.controllers.bootstrap.heartbeats import Heartbeats
from croupier.controllers.bootstrap.node_snapshot import PRODUCT, BootstrapSnapshot
from croupier.controllers.bootstrap.service_pods import ServicePodOptions, ServicePods
from croupier.controllers.shared import apply, conditions
from croupier.controllers.shared.agent_reports import AgentReports
from croupier.controllers.shared.card_events import CardEventRecorders
from croupier.core.cards.lifecycle import BOOTSTRAP
from croupier.core.nodes import bootstrap
from croupier.core.nodes.bootstrap import BootstrapDecision, BootstrapFacts
from croupier.kube.cache import store
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.controller import events
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "bootstrap"
ACTION: Final = "Bootstrap"
DEBOUNCE: Final = 0.5
"""Seconds until a node is reconciled after a change of its cards or its inventory."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BootstrapInformers:
    inventories: Informer[GPUNodeInventory]
    devices: Informer[GPUDevice]
    nodes: Informer[Node]
    leases: Informer[Lease]
    """The Leases of the agents."""
    pods: Informer[Pod]
    """Bound pods."""


@dataclass(frozen=True, slots=True)
class BootstrapOptions:
    places: ServicePodOptions = field(default_factory=ServicePodOptions)
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=4))
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


class BootstrapController:
    """With leader election, `api` must be fenced by the caller."""

    def __init__(
        self,
        sources: BootstrapInformers,
        api: Client,
        *,
        recorders: CardEventRecorders,
        settings: BootstrapOptions | None = None,
    ) -> None:
        self._sources = sources
        self._api = api.with_field_manager(BOOTSTRAP)
        self._recorders = recorders
        self._settings = settings or BootstrapOptions()
        self._heartbeats = Heartbeats(self._api, self._settings.clock)
        self._reports = AgentReports(sources.leases)
        self._devices = sources.devices.store.index(index_keys.node_of_device)
        self._services = ServicePods(sources.pods.store, self._api, self._settings.places)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, metrics=self._settings.metrics
        )
        watch = self.controller.watch
        inventories = sources.inventories
        watch(inventories.store, inventories.cache, lambda found: (found.metadata.name,), within=DEBOUNCE)
        watch(sources.pods.store, sources.pods.cache, self._services.node_of)
        # Only some of these changes trigger a reconcile (see `run`), but all must be synced before.
        watch(sources.devices.store, sources.devices.cache, lambda _: ())
        watch(sources.nodes.store, sources.nodes.cache, lambda _: ())
        watch(sources.leases.store, sources.leases.cache, lambda _: ())

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        self._heartbeats.forget_all()  # a new leader has no history
        endings = (
            self._reports.subscribe(
                self.controller.add, node_snapshot.relevant_fields, heartbeat=self._renewed
            ),
            self._sources.nodes.store.subscribe(self._node_changed),
            self._sources.devices.store.subscribe(self._device_changed),
        )
        try:
            with store.open_indexes(self._devices, *self._reports.indexes, *self._services.indexes):
                await self.controller.run(stop, leader_check)
        finally:
            for end in endings:
                end()

    async def reconcile(self, node: str) -> Result:
        inventory = self._sources.inventories.store.named(node)
        if inventory is None:
            self._heartbeats.forget(node)
            return DONE
        await self._heartbeats.confirm_silence(inventory, self._reports.lease(node))
        facts = node_snapshot.facts(self._snapshot(inventory))
        verdict = bootstrap.decide(facts)
        for pod in await self._services.sync(inventory, verdict.start):
            self.controller.wrote(node, PODS, pod)
            note = f"started {pod.metadata.key}, because the node has no such service"
            self._record_event(inventory, "GPUServiceStarted", note)
        await self._write(inventory, facts, verdict)
        return Result(requeue_after=verdict.again)

    def _snapshot(self, inventory: GPUNodeInventory) -> BootstrapSnapshot:
        node, report = inventory.metadata.name, self._reports.of(inventory.metadata.name)
        lease, services = self._reports.lease(node), self._services.on(node)
        good = node_snapshot.exporter_ready(services)
        return BootstrapSnapshot(
            inventory,
            tuple(self._devices.get(node)),
            now=self._settings.clock.monotonic(),
            since=self._heartbeats.since(node),
            node=self._sources.nodes.store.named(node),
            report=report,
            services=services,
            pulse=self._heartbeats.observe(inventory, lease, report, good=good),
            images=self._settings.places.images.images,
        )

    async def _write(
        self, inventory: GPUNodeInventory, facts: BootstrapFacts, verdict: BootstrapDecision
    ) -> None:
        now = self._settings.clock.now()
        status = bootstrap_status.desired(inventory, facts, verdict, now)
        if status == bootstrap_status.current(inventory):
            return
        body = apply.apply_body(inventory, bootstrap_status.with_times(status, facts, now))
        try:
            written = await self._api.apply(GPU_NODE_INVENTORIES, body, force=True, subresource="status")
        except NotFound:
            return
        self.controller.wrote(inventory.metadata.name, GPU_NODE_INVENTORIES, written)
        for condition in conditions.became_true(inventory.status.conditions, status.conditions):
            if reason := bootstrap_status.EVENTS.get(condition.type):
                self._record_event(inventory, reason, condition.message, warning=True)
        before = inventory.status.bootstrap.phase
        if before != verdict.phase:
            self._record_event(inventory, "GPUBootstrap", f"{before or 'New'} -> {verdict.phase}")

    def _record_event(
        self, inventory: GPUNodeInventory, reason: str, note: str, *, warning: bool = False
    ) -> None:
        (log.warning if warning else log.info)(note, reason=reason, node=inventory.metadata.name)
        about = events.reference_to(GPU_NODE_INVENTORIES, inventory)
        recorder = self._recorders.of(BOOTSTRAP)
        recorder.record(about, reason, note, action=ACTION, type="Warning" if warning else "Normal")

    def _renewed(self, node: str) -> None:
        self._heartbeats.renewed(node, self._reports.lease(node))

    def _device_changed(self, change: ObjectChange[GPUDevice]) -> None:
        """The cards of a node often change together, so their changes are debounced."""
        for node in _nodes(change):
            self.controller.add(node, within=DEBOUNCE)

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        if _relevant_fields(change.old) != _relevant_fields(change.new):
            self.controller.add(change.key.name)


def _nodes(change: ObjectChange[GPUDevice]) -> set[str]:
    """The nodes that the change affects; none if the phase and the holders of the card are the same."""
    versions = [device for device in (change.old, change.new) if device is not None]
    relevant = {
        (node_snapshot.bootstrap_card(device), *index_keys.node_of_device(device)) for device in versions
    }
    if len(versions) > len(relevant):
        return set()
    return {node for device in versions for node in index_keys.node_of_device(device)}


def _relevant_fields(node: Node | None) -> tuple[str, dict[str, str]]:
    """The fields of a Node that matter here: its product label and the resources of device plugins."""
    if node is None:
        return "", {}
    served = {name: amount for name, amount in node.status.allocatable.items() if "nvidia.com/" in name}
    return node.metadata.labels.get(PRODUCT, ""), served
