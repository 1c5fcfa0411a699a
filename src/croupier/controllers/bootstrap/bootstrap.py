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
from croupier.api.gpu import GPUDevice, GPUNodeInventory, agent_report
from croupier.api.kinds import GPU_NODE_INVENTORIES, LEASES, PODS
from croupier.controllers import conditions
from croupier.controllers.bootstrap import reading
from croupier.controllers.bootstrap import status as bootstrap_status
from croupier.controllers.bootstrap.hearts import Hearts
from croupier.controllers.bootstrap.reading import PRODUCT, Look
from croupier.controllers.bootstrap.services import Places, Services
from croupier.controllers.cards import status as cards_status
from croupier.controllers.cards.reporters import Reporters
from croupier.controllers.inventory.agent_reports import AgentReports
from croupier.controllers.ledger import sight
from croupier.controllers.watched import Watched
from croupier.core.cards.lifecycle import BOOTSTRAP
from croupier.core.nodes import bootstrap
from croupier.core.nodes.bootstrap import DCGM, FRESH, NodeFacts, Verdict
from croupier.kube import events, store
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.controller import Controller, Options
from croupier.kube.errors import NotFound
from croupier.kube.reconcile import DONE, Result
from croupier.kube.shift import ANYONE, Authority, Gauge, Unmeasured
from croupier.kube.store import Change

NAME: Final = "bootstrap"
ACTION: Final = "Bootstrap"
GATHERED: Final = 0.5
"""Seconds until a node is reconciled after a change of its cards or its inventory."""
SLOW: Final = 5.0
"""Seconds after which a response of the API server is too slow to conclude that an agent is silent."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sources:
    inventories: Watched[GPUNodeInventory]
    devices: Watched[GPUDevice]
    nodes: Watched[Node]
    leases: Watched[Lease]
    """The Leases of the agents."""
    pods: Watched[Pod]
    """Bound pods."""


@dataclass(frozen=True, slots=True)
class Settings:
    places: Places = field(default_factory=Places)
    options: Options = field(default_factory=lambda: Options(workers=4))
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=Unmeasured)


class BootstrapController:
    """With leader election, `api` must be fenced by the caller."""

    def __init__(
        self, sources: Sources, api: Client, *, reporters: Reporters, settings: Settings | None = None
    ) -> None:
        self._sources = sources
        self._api = api.acting_as(BOOTSTRAP)
        self._reporters = reporters
        self._settings = settings or Settings()
        self._hearts = Hearts(self._settings.clock)
        self._reports = AgentReports(sources.leases)
        self._devices = sources.devices.store.index(sight.node_of_device)
        self._services = Services(sources.pods.store, self._api, self._settings.places)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, gauge=self._settings.gauge
        )
        watch = self.controller.watch
        inventories = sources.inventories
        watch(inventories.store, inventories.cache, lambda found: (found.metadata.name,), within=GATHERED)
        watch(sources.pods.store, sources.pods.cache, self._services.node_of)
        # Only some of these changes trigger a reconcile (see `run`), but all must be synced before.
        watch(sources.devices.store, sources.devices.cache, lambda _: ())
        watch(sources.nodes.store, sources.nodes.cache, lambda _: ())
        watch(sources.leases.store, sources.leases.cache, lambda _: ())

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        self._hearts.forget_all()  # a new leader has no history
        endings = (
            self._reports.subscribe(self.controller.add, reading.word, heard=self._hearts.heard),
            self._sources.nodes.store.subscribe(self._node_changed),
            self._sources.devices.store.subscribe(self._device_changed),
        )
        try:
            with store.kept(self._devices, *self._reports.indexes, *self._services.indexes):
                await self.controller.run(stop, authority)
        finally:
            for end in endings:
                end()

    async def reconcile(self, node: str) -> Result:
        inventory = self._sources.inventories.store.named(node)
        if inventory is None:
            self._hearts.forget(node)
            return DONE
        facts = reading.facts(self._snapshot(inventory))
        if facts.agent and facts.quiet > FRESH and not reading.failing(inventory):
            await self._listen(node)
            facts = reading.facts(self._snapshot(inventory))
        verdict = bootstrap.judge(facts)
        for pod in await self._services.keep(inventory, verdict.start):
            self.controller.wrote(node, PODS, pod)
            note = f"started {pod.metadata.key}, because the node has no such service"
            self._tell(inventory, "GPUServiceStarted", note)
        await self._write(inventory, facts, verdict)
        return Result(again_after=verdict.again)

    def _snapshot(self, inventory: GPUNodeInventory) -> Look:
        node, report = inventory.metadata.name, self._reports.of(inventory.metadata.name)
        services = self._services.on(node)
        exported = any(service.ready for service in services if service.kind == DCGM)
        return Look(
            inventory,
            tuple(self._devices.get(node)),
            now=self._settings.clock.monotonic(),
            since=self._hearts.since(node),
            node=self._sources.nodes.store.named(node),
            report=report,
            services=services,
            pulse=self._hearts.feel(inventory, report, good=exported),
            images=self._settings.places.images.images,
        )

    async def _listen(self, node: str) -> None:
        """Before an agent is reported as silent, read its Lease directly: the informer may be stale.

        If the API server is unavailable or slow, the agent gets the full timeout again.
        """
        seen, began = self._reports.lease(node), self._settings.clock.monotonic()
        excused = True
        try:
            name, namespace = agent_report.lease_name(node), self._settings.places.namespace
            lease = await self._api.get(LEASES, name, namespace=namespace)
            newer = seen is None or lease.metadata.resource_version != seen.metadata.resource_version
            excused = newer or self._settings.clock.monotonic() - began > SLOW
        except NotFound:
            excused = False
        finally:
            if excused:
                self._hearts.heard(node)

    async def _write(self, inventory: GPUNodeInventory, facts: NodeFacts, verdict: Verdict) -> None:
        now = self._settings.clock.now()
        status = bootstrap_status.meant(inventory, facts, verdict, now)
        if status == bootstrap_status.as_is(inventory):
            return
        body = cards_status.applied(inventory, bootstrap_status.dated(status, facts, now))
        try:
            written = await self._api.apply(GPU_NODE_INVENTORIES, body, force=True, subresource="status")
        except NotFound:
            return
        self.controller.wrote(inventory.metadata.name, GPU_NODE_INVENTORIES, written)
        for condition in conditions.turned(inventory.status.conditions, status.conditions):
            if reason := bootstrap_status.EVENTS.get(condition.type):
                self._tell(inventory, reason, condition.message, warning=True)
        before = inventory.status.bootstrap.phase
        if before != verdict.phase:
            self._tell(inventory, "GPUBootstrap", f"{before or 'New'} -> {verdict.phase}")

    def _tell(self, inventory: GPUNodeInventory, reason: str, note: str, *, warning: bool = False) -> None:
        (log.warning if warning else log.info)(note, reason=reason, node=inventory.metadata.name)
        about = events.about(GPU_NODE_INVENTORIES, inventory)
        recorder = self._reporters.of(BOOTSTRAP)
        recorder.record(about, reason, note, action=ACTION, type="Warning" if warning else "Normal")

    def _device_changed(self, change: Change[GPUDevice]) -> None:
        """The cards of a node often change together, so their changes are debounced."""
        for node in _nodes(change):
            self.controller.add(node, within=GATHERED)

    def _node_changed(self, change: Change[Node]) -> None:
        if _seen(change.old) != _seen(change.new):
            self.controller.add(change.key.name)


def _nodes(change: Change[GPUDevice]) -> set[str]:
    """The nodes that the change affects; none if the phase and the holders of the card are the same."""
    versions = [device for device in (change.old, change.new) if device is not None]
    relevant = {(reading.standing(device), *sight.node_of_device(device)) for device in versions}
    if len(versions) > len(relevant):
        return set()
    return {node for device in versions for node in sight.node_of_device(device)}


def _seen(node: Node | None) -> tuple[str, dict[str, str]]:
    """The fields of a Node that matter here: its product label and the resources of device plugins."""
    if node is None:
        return "", {}
    served = {name: amount for name, amount in node.status.allocatable.items() if "nvidia.com/" in name}
    return node.metadata.labels.get(PRODUCT, ""), served
