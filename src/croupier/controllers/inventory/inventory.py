"""The inventory controller: writes GPUDevice and GPUNodeInventory from agent reports, NFD and labels.

One key is one node. A heartbeat without new information costs one comparison and no write. The
GPUNodeInventory is written first, so that a card cannot join a pool before contradictions in its data are
reported.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

import structlog

from croupier.api import nfd
from croupier.api.gpu import GPUDevice, agent_report
from croupier.api.gpu import convert_inventory as cards
from croupier.api.gpu.device import VANISHED, GPUDeviceStatus
from croupier.api.kinds import GPU_DEVICES, GPU_NODE_INVENTORIES
from croupier.api.meta import ObjectMeta
from croupier.controllers.inventory import desired_status
from croupier.controllers.inventory.desired_status import NodeManagement
from croupier.controllers.inventory.inventory_snapshot import (
    InventoryInformers,
    InventoryReader,
    InventorySnapshot,
    node_of,
)
from croupier.controllers.shared import agent_liveness, conditions
from croupier.controllers.shared.agent_liveness import AgentLiveness
from croupier.core.cards import lifecycle
from croupier.core.cards.census import DeviceEvent, DevicePlan, NamedCard
from croupier.core.cards.features import GpuFeatures
from croupier.core.model.condition import DesiredCondition
from croupier.kube.cache import store
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import AlreadyExists, NotFound
from croupier.kube.controller import events
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.event_series import EventType
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "inventory"
REPORTER: Final = lifecycle.INVENTORY
"""The reporting controller of Events and the field manager."""
MARGIN: Final = 0.1

_EVENT_REASONS: Final = {
    "InventoryIncomplete": "GPUNodeFeatureMissing",
    "AgentSilent": "GPUAgentSilent",
    "ManagedDisabled": "GPUNodeNotManaged",
}
"""Reasons of the Events for conditions that become True."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class InventoryOptions:
    management: NodeManagement = field(default_factory=NodeManagement)
    timeout: float = 40.0
    """Seconds without a heartbeat after which an agent counts as silent."""
    removal_delay: timedelta = timedelta(seconds=60)
    """How long the GPUDevice of a vanished card stays at least: the card may come back."""
    confirmation_delay: float = 2.0
    """Seconds for which a known node must be incomplete before that is reported: an agent that lost a card
    reports it first and corrects its labels later."""
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=8, resync=30.0))
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


class InventoryController:
    """With leader election, `api` must be fenced by the caller."""

    def __init__(
        self,
        sources: InventoryInformers,
        api: Client,
        *,
        recorder: EventRecorder,
        settings: InventoryOptions | None = None,
    ) -> None:
        self._reading = InventoryReader(sources)
        self._api = api.with_field_manager(REPORTER)
        self._recorder = recorder
        self._settings = settings or InventoryOptions()
        read = partial(agent_liveness.read_lease, self._api)
        self._liveness = AgentLiveness(read, self._settings.clock, self._settings.timeout)
        self._incomplete_since: dict[str, float] = {}
        """By node: since when it is incomplete, while that is not reported yet."""
        self._settled: dict[str, tuple[object, ...]] = {}
        """By node: the fingerprint of the snapshot after which nothing was left to write."""
        options, metrics = self._settings.options, self._settings.metrics
        self.controller: Controller[str] = Controller(NAME, self.reconcile, options, metrics=metrics)
        self._watch(sources)

    def _watch(self, sources: InventoryInformers) -> None:
        watch = self.controller.watch
        watch(sources.nodes.store, sources.nodes.cache, lambda found: (found.metadata.name,))
        watch(sources.leases.store, sources.leases.cache, lambda lease: (agent_report.LEASE.node_of(lease),))
        watch(sources.features.store, sources.features.cache, lambda feature: (nfd.node_of(feature),))
        watch(sources.devices.store, sources.devices.cache, node_of)
        watch(sources.inventories.store, sources.inventories.cache, lambda found: (found.metadata.name,))

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        self._liveness.clear()  # a new leader has no history
        self._incomplete_since.clear()
        self._settled.clear()
        with store.open_indexes(*self._reading.indexes):
            await self.controller.run(stop, leader_check)

    async def reconcile(self, node: str) -> Result:
        snapshot = self._reading.of(node)
        if snapshot is None:  # the Node owned its objects
            self._liveness.forget(node)
            self._incomplete_since.pop(node, None)
            self._settled.pop(node, None)
            return DONE
        silent = await self._liveness.silent(node, snapshot.lease, was_silent=snapshot.was_silent)
        vanished = self._vanished_due(snapshot)
        mark = (silent, vanished == 0, *snapshot.fingerprint())
        if self._settled.get(node) != mark and not await self._keep(snapshot, silent):
            self._settled[node] = mark
        doubt = self._settings.confirmation_delay if node in self._incomplete_since else None
        times = [time for time in (self._liveness.left(node), vanished, doubt) if time]
        return Result(requeue_after=min(times) + MARGIN) if times else DONE

    def _vanished_due(self, snapshot: InventorySnapshot) -> float | None:
        """Seconds until the removal delay of the next vanished card ends; 0 if one has ended."""
        now = self._settings.clock.now()
        since = [
            condition.last_transition_time
            for device in snapshot.devices.values()
            for condition in conditions.select({VANISHED}, device.status.conditions)
            if condition.status == "True"
        ]
        left = [(start + self._settings.removal_delay - now).total_seconds() for start in since]
        return max(0.0, min(left)) if left else None

    async def _keep(self, snapshot: InventorySnapshot, silent: bool | None) -> bool:
        """Write what differs. The result says whether anything did, or may soon."""
        found = snapshot.features()
        sighting = snapshot.discovered(found)
        plan = snapshot.plan(sighting, self._settings.clock.now() - self._settings.removal_delay)
        nothing = (
            not plan.cards and not snapshot.devices and snapshot.lease is None and snapshot.inventory is None
        )
        if nothing and not sighting.troubles:
            return False  # not a node with cards
        managed = self._settings.management.judge(snapshot.node)
        judged = (
            self._confirmed(snapshot, desired_status.incomplete(sighting)),
            managed,
            desired_status.agent_silent(silent, self._settings.timeout),
        )
        wrote = await self._keep_node(snapshot, plan, found, judged)
        ours, now = managed.status == "False", self._settings.clock.now()
        gone = {name: desired_status.gone_status(snapshot.devices[name], now) for name in plan.vanished}
        changed = await concurrency.gather_limited(
            (
                *(self._keep_card(snapshot, placed, found, managed=ours) for placed in plan.cards),
                *(
                    self._apply_card(snapshot, snapshot.devices[name], status)
                    for name, status in gone.items()
                ),
            )
        )
        # Only now: user annotations must be copied to the new object before the old one is deleted.
        removed = await concurrency.gather_limited(
            self._remove(snapshot, snapshot.devices[name]) for name in plan.removed
        )
        self._record_event(snapshot, plan.news)
        return wrote or any((*changed, *removed)) or snapshot.name in self._incomplete_since

    def _confirmed(self, snapshot: InventorySnapshot, incomplete: DesiredCondition) -> DesiredCondition:
        """The condition to report: a complete inventory stays complete for the confirmation delay."""
        was = snapshot.was_complete
        if incomplete.status == "False" or was is None:
            self._incomplete_since.pop(snapshot.name, None)
            return incomplete
        now = self._settings.clock.monotonic()
        since = self._incomplete_since.setdefault(snapshot.name, now)
        if now - since < self._settings.confirmation_delay:
            return DesiredCondition(was.type, was.status, was.reason, was.message)
        del self._incomplete_since[snapshot.name]
        return incomplete

    async def _keep_node(
        self,
        snapshot: InventorySnapshot,
        plan: DevicePlan,
        found: GpuFeatures,
        judged: tuple[DesiredCondition, ...],
    ) -> bool:
        meta = ObjectMeta(name=snapshot.name, owner_references=(desired_status.owner(snapshot.node),))
        kept, wrote = snapshot.inventory, False
        if kept is None or not desired_status.has_metadata(kept.metadata, meta):
            kept = await self._api.apply(GPU_NODE_INVENTORIES, desired_status.apply_body(meta), force=True)
            self.controller.wrote(snapshot.name, GPU_NODE_INVENTORIES, kept)
            wrote = True
        driver, now = cards.driver(snapshot.report, found), self._settings.clock.now()
        status = desired_status.node_status(kept, plan, driver=driver, judged=judged, now=now)
        before = desired_status.current_node_status(kept)
        if status != before:
            body = desired_status.apply_body(ObjectMeta(name=snapshot.name), status)
            kept = await self._api.apply(GPU_NODE_INVENTORIES, body, subresource="status", force=True)
            self.controller.wrote(snapshot.name, GPU_NODE_INVENTORIES, kept)
            about = events.reference_to(GPU_NODE_INVENTORIES, kept)
            for new in conditions.became_true(before.conditions, status.conditions):
                log.warning(new.message, node=snapshot.name, condition=new.type, reason=new.reason)
                self._recorder.record(
                    about, _EVENT_REASONS[new.type], new.message, action="Look", type="Warning"
                )
            wrote = True
        if added := [card for card in plan.cards if card.id not in snapshot.devices]:
            about = events.reference_to(GPU_NODE_INVENTORIES, kept)
            self._recorder.record(about, "GPUCardsFound", f"found {_counted(added)}", action="Look")
        return wrote

    async def _keep_card(
        self, snapshot: InventorySnapshot, placed: NamedCard, found: GpuFeatures, *, managed: bool
    ) -> bool:
        meta = desired_status.card_meta(snapshot, placed)
        kept, wrote = snapshot.devices.get(placed.id), False
        if kept is None:
            full = desired_status.inherited(snapshot.devices.get(placed.replaces), meta)
            with suppress(AlreadyExists):  # created by an interrupted reconcile
                await self._api.create(GPU_DEVICES, desired_status.apply_body(full))
            kept = GPUDevice(metadata=meta)
        elif not desired_status.has_metadata(kept.metadata, meta):
            kept = await self._api.apply(GPU_DEVICES, desired_status.apply_body(meta), force=True)
            self.controller.wrote(snapshot.name, GPU_DEVICES, kept)
            wrote = True
        now = self._settings.clock.now()
        status = desired_status.card_status(snapshot, placed, found, managed=managed, now=now)
        return await self._apply_card(snapshot, kept, status) or wrote

    async def _apply_card(
        self, snapshot: InventorySnapshot, before: GPUDevice, status: GPUDeviceStatus
    ) -> bool:
        if status == desired_status.current_card_status(before):
            return False
        body = desired_status.apply_body(ObjectMeta(name=before.metadata.name), status)
        written = await self._api.apply(GPU_DEVICES, body, subresource="status", force=True)
        self.controller.wrote(snapshot.name, GPU_DEVICES, written)
        return True

    async def _remove(self, snapshot: InventorySnapshot, device: GPUDevice) -> bool:
        """Delete only the version that was read: the card may just have been allocated."""
        meta = device.metadata
        how = DeleteOptions(uid=meta.uid, resource_version=meta.resource_version)
        with suppress(NotFound):
            await self._api.delete(GPU_DEVICES, meta.name, how=how)
            self.controller.deleted(snapshot.name, GPU_DEVICES, device)
        log.info(
            f"GPUDevice {meta.name} was deleted because its card left node {snapshot.name}",
            node=snapshot.name,
            card=meta.name,
        )
        return True

    def _record_event(self, snapshot: InventorySnapshot, news: Iterable[DeviceEvent]) -> None:
        for event in news:
            about = events.reference_to(GPU_DEVICES, snapshot.devices[event.id])
            kind: EventType = "Warning" if event.warning else "Normal"
            self._recorder.record(about, event.reason, event.note, action="Look", type=kind)


def _counted(cards: Iterable[NamedCard]) -> str:
    """`8 x NVIDIA-H100-80GB-HBM3`."""
    counts = Counter(named.card.product or "a card of unknown model" for named in cards)
    return ", ".join(f"{number} x {product}" for product, number in sorted(counts.items()))
