"""Syncs the cards in every node's ledger with the node's report.

The ledger of a new node is opened with all holds of its pods and Reservations. After that its cards follow
the report. It is closed when the Node is gone and has no holders. A node without cards has no ledger.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from croupier.capacity import index_keys
from croupier.capacity.cluster_view import ClusterView
from croupier.capacity.manager import CapacityManager, UnknownNode
from croupier.core.claims import rebuild
from croupier.core.ledger import sync_cards
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.reported_cards import NodeCardReport
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import (
    ALWAYS_LEADER,
    LeaderCheck,
)
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "capacity"
RESYNC: Final = 300.0
"""Seconds between reconciles of every node, changed or not."""
DEBOUNCE: Final = 0.2
"""Seconds to collect changes of a node's cards, which mostly change together."""
MAX_CONCURRENT: Final = 32
"""Maximum number of nodes that are primed concurrently."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CardSyncOptions:
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=16))
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


class CardSyncController:
    def __init__(
        self, view: ClusterView, manager: CapacityManager, settings: CardSyncOptions | None = None
    ) -> None:
        self._view = view
        self._manager = manager
        self._settings = settings or CardSyncOptions()
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, metrics=self._settings.metrics
        )
        sources = view.sources
        self.controller.watch(sources.nodes.store, sources.nodes.cache, lambda node: (node.metadata.name,))
        devices = sources.devices
        self.controller.watch(devices.store, devices.cache, index_keys.node_of_device, within=DEBOUNCE)
        self.controller.watch(sources.pools.store, sources.pools.cache, view.nodes_with)
        inventories = sources.inventories
        self.controller.watch(
            inventories.store, inventories.cache, lambda inventory: (inventory.metadata.name,)
        )
        # A ledger is opened with the node's pods and Reservations: their caches must have synced before that,
        # but their changes enqueue no key.
        self.controller.watch(sources.pods.store, sources.pods.cache, lambda _: ())
        self.controller.watch(sources.reservations.store, sources.reservations.cache, lambda _: ())

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        unsubscribe = self._manager.subscribe(self._ledger_changed)
        waking = asyncio.create_task(self._enqueue_all())
        try:
            await self.controller.run(stop, leader_check)
        finally:
            waking.cancel()
            unsubscribe()

    async def _enqueue_all(self) -> None:
        """Enqueue every ledger periodically, including those of deleted nodes."""
        while True:
            for node in tuple(self._manager.nodes()):
                self.controller.add(node)
            await asyncio.sleep(RESYNC)

    async def prime(self) -> None:
        """Reconcile every node once, so that all ledgers are open before the process serves."""
        await self._view.complete()
        slots = asyncio.Semaphore(MAX_CONCURRENT)

        async def reconcile(node: str) -> None:
            async with slots:
                await self.reconcile(node)

        async with asyncio.TaskGroup() as group:
            for node in sorted(self._view.nodes() | set(self._manager.nodes())):
                group.create_task(reconcile(node))

    async def reconcile(self, node: str) -> Result:
        report = self._view.report(node)
        held = self._manager.ledger(node)
        if held is None:
            return await self._open(report)
        change = _sync_cards(report)
        if change(held) != held:
            log.info(f"the ledger of node {node} gets the current cards", node=node)
            await self._amend(node, change)
        if not report.present and not held.holders():
            await self._manager.close(node)
        return DONE

    async def _open(self, report: NodeCardReport) -> Result:
        if not report.present:
            return DONE
        pods, holds = self._view.pods_on(report.node), self._view.reservation_holds(report.node)
        rebuilt = rebuild.rebuild(report, pods, holds, self._settings.clock.now())
        if not rebuilt.ledger.cards:
            return DONE
        for finding in rebuilt.findings:
            log.warning(finding.message, finding=finding.kind, node=report.node)
        await self._manager.open(report.node, rebuilt.ledger)
        log.info(
            f"the ledger of node {report.node} was opened", node=report.node, cards=len(rebuilt.ledger.cards)
        )
        return Result(requeue_after=0)  # an already existing ledger may have other cards

    async def _amend(self, node: str, change: Callable[[Ledger], Ledger]) -> None:
        try:
            await self._manager.amend(node, change)
        except UnknownNode:
            self.controller.add(node)  # the ledger was just closed

    def _ledger_changed(self, node: str) -> None:
        """Close the ledger of a deleted node with its last holder; reopen a ledger that was deleted."""
        if self._view.node(node) is None or self._manager.ledger(node) is None:
            self.controller.add(node)


def _sync_cards(report: NodeCardReport) -> Callable[[Ledger], Ledger]:
    return lambda held: sync_cards.sync(held, report)
