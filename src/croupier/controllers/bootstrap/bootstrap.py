"""Whether each node is fit to serve its cards: driver, toolkit, labels, monitoring.

One key is one node. What is missing is named, what we may start there is started, and what is no longer
needed is taken away. A node that is not ready is looked at every 15 seconds, a ready one every minute; a
heartbeat alone wakes nobody and writes nothing.
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
"""Seconds within which a node is looked at when its cards, or what is said of it, change."""
SLOW: Final = 5.0
"""Seconds after which an answer says more about the API server than about an agent."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sources:
    inventories: Watched[GPUNodeInventory]
    devices: Watched[GPUDevice]
    nodes: Watched[Node]
    leases: Watched[Lease]
    """Of the agents."""
    pods: Watched[Pod]
    """Those that are bound."""


@dataclass(frozen=True, slots=True)
class Settings:
    places: Places = field(default_factory=Places)
    options: Options = field(default_factory=lambda: Options(workers=4))
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=Unmeasured)


class BootstrapController:
    """`api` is fenced by the caller, where there is an election."""

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
        watch(inventories.store, inventories.cache, lambda one: (one.metadata.name,), within=GATHERED)
        watch(sources.pods.store, sources.pods.cache, self._services.node_of)
        # Of these only some changes matter (see `run`), but they must be known before anything is judged.
        watch(sources.devices.store, sources.devices.cache, lambda _: ())
        watch(sources.nodes.store, sources.nodes.cache, lambda _: ())
        watch(sources.leases.store, sources.leases.cache, lambda _: ())

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        self._hearts.forget_all()  # one who comes to office knows nothing of what happened before
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
        facts = reading.facts(self._look(inventory))
        if facts.agent and facts.quiet > FRESH and not reading.failing(inventory):
            await self._listen(node)
            facts = reading.facts(self._look(inventory))
        verdict = bootstrap.judge(facts)
        for pod in await self._services.keep(inventory, verdict.start):
            self.controller.wrote(node, PODS, pod)
            self._tell(
                inventory, "GPUServiceStarted", f"started {pod.metadata.key}: nobody else does it here"
            )
        await self._write(inventory, facts, verdict)
        return Result(again_after=verdict.again)

    def _look(self, inventory: GPUNodeInventory) -> Look:
        node, report = inventory.metadata.name, self._reports.of(inventory.metadata.name)
        services = self._services.on(node)
        exported = any(one.ready for one in services if one.kind == DCGM)
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
        """Before an agent is called silent, it is looked at directly: it may be us who heard nothing.

        Where the API server is away or slow, nobody can be heard, and the agent gets its time anew.
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
        for one in conditions.turned(inventory.status.conditions, status.conditions):
            if reason := bootstrap_status.EVENTS.get(one.type):
                self._tell(inventory, reason, one.message, warning=True)
        before = inventory.status.bootstrap.phase
        if before != verdict.phase:
            self._tell(inventory, "GPUBootstrap", f"{before or 'New'} -> {verdict.phase}")

    def _tell(self, inventory: GPUNodeInventory, reason: str, note: str, *, warning: bool = False) -> None:
        (log.warning if warning else log.info)(note, reason=reason, node=inventory.metadata.name)
        about = events.about(GPU_NODE_INVENTORIES, inventory)
        recorder = self._reporters.of(BOOTSTRAP)
        recorder.record(about, reason, note, action=ACTION, type="Warning" if warning else "Normal")

    def _device_changed(self, change: Change[GPUDevice]) -> None:
        """The cards of a node mostly change together: they are told of together."""
        for node in _nodes(change):
            self.controller.add(node, within=GATHERED)

    def _node_changed(self, change: Change[Node]) -> None:
        if _seen(change.old) != _seen(change.new):
            self.controller.add(change.key.name)


def _nodes(change: Change[GPUDevice]) -> set[str]:
    """Whose judgement it may change: nobody's, if the card's phase and holders are as before."""
    there = [one for one in (change.old, change.new) if one is not None]
    said = {(reading.standing(one), *sight.node_of_device(one)) for one in there}
    if len(there) > len(said):
        return set()
    return {node for one in there for node in sight.node_of_device(one)}


def _seen(node: Node | None) -> tuple[str, dict[str, str]]:
    """What of a Node matters here: whether it is labelled, and what device plugins serve on it."""
    if node is None:
        return "", {}
    served = {name: amount for name, amount in node.status.allocatable.items() if "nvidia.com/" in name}
    return node.metadata.labels.get(PRODUCT, ""), served
