"""The card controller: phase, pool and pending assignments of every card.

One key is one node, because the cards of a node compete for the places of a pool. A reconcile decides about
all cards of the node, writes each card at most once, and records one Event for each changed card, whatever
the number of transitions.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from croupier.api.core_v1 import Lease, Node
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, pooling
from croupier.api.gpu.device import ASSIGNMENT
from croupier.api.kinds import GPU_DEVICES, GPU_NODE_INVENTORIES
from croupier.controllers import conditions
from croupier.controllers.cards import reading
from croupier.controllers.cards import status as cards_status
from croupier.controllers.cards.reading import Look
from croupier.controllers.cards.reporters import Reporters
from croupier.controllers.inventory.agent_reports import AgentReports
from croupier.controllers.ledger import sight
from croupier.controllers.watched import Watched
from croupier.core.cards import course, lifecycle
from croupier.core.cards.course import Course
from croupier.core.cards.lifecycle import POOL
from croupier.core.ledgers.ledger import Ledger
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools.assignment import NOBODY, Approval
from croupier.kube import events, store, together
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.controller import Controller, Options
from croupier.kube.errors import NotFound
from croupier.kube.reconcile import DONE, Result
from croupier.kube.shift import ANYONE, Authority, Gauge, Unmeasured
from croupier.kube.store import Change

NAME: Final = "cards"
ACTION: Final = "Lifecycle"
UNITS_WITHIN: Final = 15.0
"""Seconds by which changes of held units are debounced; placements come in large bursts."""

log = structlog.get_logger(__name__)


class Ledgers(Protocol):
    """Read access to the ledgers of nodes."""

    def ledger(self, node: str) -> Ledger | None: ...
    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]: ...


@dataclass(frozen=True, slots=True)
class Sources:
    devices: Watched[GPUDevice]
    inventories: Watched[GPUNodeInventory]
    pools: Watched[GPUPool]
    nodes: Watched[Node]
    leases: Watched[Lease]
    """The Leases of the agents."""


@dataclass(frozen=True, slots=True)
class Settings:
    approval: Approval = NOBODY
    options: Options = field(default_factory=lambda: Options(workers=8, resync=300.0))
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=Unmeasured)


class CardController:
    """With leader election, `api` must be fenced by the caller."""

    def __init__(
        self,
        sources: Sources,
        api: Client,
        *,
        reporters: Reporters,
        ledgers: Ledgers,
        settings: Settings | None = None,
    ) -> None:
        self._sources = sources
        self._api = api.acting_as(POOL)
        self._reporters = reporters
        self._ledgers = ledgers
        self._settings = settings or Settings()
        self._reports = AgentReports(sources.leases)
        self._devices = sources.devices.store.index(sight.node_of_device)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, gauge=self._settings.gauge
        )
        watch = self.controller.watch
        watch(sources.devices.store, sources.devices.cache, sight.node_of_device)
        watch(sources.inventories.store, sources.inventories.cache, lambda found: (found.metadata.name,))
        # Only some of these changes trigger a reconcile (see `run`), but all must be synced before.
        watch(sources.pools.store, sources.pools.cache, lambda _: ())
        watch(sources.nodes.store, sources.nodes.cache, lambda _: ())
        watch(sources.leases.store, sources.leases.cache, lambda _: ())

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        endings = (
            self._sources.pools.store.subscribe(self._pool_changed),
            self._sources.nodes.store.subscribe(self._node_changed),
            self._reports.subscribe(self.controller.add, reading.health),
            self._ledgers.subscribe(lambda node: self.controller.add(node, within=UNITS_WITHIN)),
        )
        try:
            with store.kept(self._devices, *self._reports.indexes):
                await self.controller.run(stop, authority)
        finally:
            for end in endings:
                end()

    async def reconcile(self, node: str) -> Result:
        devices = {_id(device): device for device in self._devices.get(node)}
        inventory = self._sources.inventories.store.named(node)
        snapshot = Look(node, tuple(devices.values()), inventory, self._reports.of(node))
        decisions = course.decide(
            reading.standings(snapshot),
            self._labels(node),
            [pooling.pool(pool) for pool in self._sources.pools.store],
            self._settings.approval,
        )
        await together.all_of(
            self._carry_out(node, devices[name], decision) for name, decision in decisions.items()
        )
        if inventory is not None:
            await self._write_node(inventory, decisions)
        return DONE

    async def _carry_out(self, node: str, device: GPUDevice, decision: Course) -> None:
        await self._annotate(node, device, decision)
        await self._write(node, device, decision)

    async def _annotate(self, node: str, device: GPUDevice, decision: Course) -> None:
        """Write only to the version that was read: a user may have changed the annotation since."""
        answer = decision.assignment
        if answer.annotation is None:
            return
        meta = device.metadata
        body = {
            "resourceVersion": meta.resource_version,
            "annotations": {ASSIGNMENT: answer.annotation or None},
        }
        try:
            written = await self._api.patch(GPU_DEVICES, meta.name, {"metadata": body})
        except NotFound:
            return
        self.controller.wrote(node, GPU_DEVICES, written)
        if answer.mismatch:
            self._tell_mismatch(device, answer.mismatch)

    async def _write(self, node: str, device: GPUDevice, decision: Course) -> None:
        status = cards_status.device(device, decision, self._settings.clock.now())
        if status == cards_status.device_now(device):
            return
        try:
            written = await self._api.apply(
                GPU_DEVICES, cards_status.applied(device, status), force=True, subresource="status"
            )
        except NotFound:
            return
        self.controller.wrote(node, GPU_DEVICES, written)
        self._tell(device, decision)

    async def _write_node(self, inventory: GPUNodeInventory, decisions: Mapping[str, Course]) -> None:
        node, now = inventory.metadata.name, self._settings.clock.now()
        status = cards_status.node(inventory, decisions, self._held(node), now)
        if status == cards_status.node_now(inventory):
            return
        body = cards_status.applied(inventory, status)
        try:
            written = await self._api.apply(GPU_NODE_INVENTORIES, body, force=True, subresource="status")
        except NotFound:
            return
        self.controller.wrote(node, GPU_NODE_INVENTORIES, written)
        for condition in conditions.turned(inventory.status.conditions, status.conditions):
            reason = "GPUUnassignedDevice" if status.pools.assigned else "GPUNodeWithoutPool"
            log.info(condition.message, reason=reason, node=node)
            about = events.about(GPU_NODE_INVENTORIES, inventory)
            self._reporters.of(POOL).record(about, reason, condition.message, action=ACTION)

    def _tell(self, device: GPUDevice, decision: Course) -> None:
        if not decision.steps:
            return
        last, note = decision.steps[-1], lifecycle.told(decision.steps)
        (log.warning if last.row.grave else log.info)(note, card=device.metadata.name, reason=last.reason)
        about, recorder = events.about(GPU_DEVICES, device), self._reporters.of(last.owner)
        recorder.record(
            about, last.reason, note, action=ACTION, type="Warning" if last.row.grave else "Normal"
        )

    def _tell_mismatch(self, device: GPUDevice, sentence: str) -> None:
        log.warning(sentence, card=device.metadata.name, reason="GPUAnnotationMismatch")
        about = events.about(GPU_DEVICES, device)
        self._reporters.of(POOL).record(
            about, "GPUAnnotationMismatch", sentence, action=ACTION, type="Warning"
        )

    def _held(self, node: str) -> Mapping[str, int]:
        ledger = self._ledgers.ledger(node)
        held: Counter[str] = Counter()
        for card in ledger.cards if ledger is not None else ():
            held[card.pool] += pool_capacity.used_of(card)
        return held

    def _labels(self, node: str) -> Mapping[str, str]:
        found = self._sources.nodes.store.named(node)
        return found.metadata.labels if found is not None else {}

    def _pool_changed(self, change: Change[GPUPool]) -> None:
        """A changed pool spec can affect all cards; a changed pool status affects none."""
        if _wish(change.old) != _wish(change.new):
            for node in tuple(self._devices.values()):
                self.controller.add(node)

    def _node_changed(self, change: Change[Node]) -> None:
        old = change.old.metadata.labels if change.old is not None else None
        new = change.new.metadata.labels if change.new is not None else None
        if old != new:
            self.controller.add(change.key.name)


def _wish(pool: GPUPool | None) -> tuple[str, int, bool] | None:
    if pool is None:
        return None
    meta = pool.metadata
    return meta.uid, meta.generation, meta.deletion_timestamp is not None


def _id(device: GPUDevice) -> str:
    return device.status.inventory_id or device.metadata.name
