"""Syncs the cards in every node's ledger with the node's report.

The ledger of a new node is opened with all holds of its pods and Reservations. After that its cards follow
the report. It is closed when the Node is gone and has no holders. A node without cards has no ledger.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from croupier.book.manager import CapacityManager, UnknownNode
from croupier.controllers.ledger import sight
from croupier.controllers.ledger.sight import Sight
from croupier.core.ledgers import capacity, rebuild, refit
from croupier.core.ledgers.capacity import Report
from croupier.core.ledgers.ledger import Ledger
from croupier.core.ledgers.rebuild import Rebuilt
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.controller import Controller, Options
from croupier.kube.reconcile import DONE, Result
from croupier.kube.shift import ANYONE, Authority, Gauge, Unmeasured

NAME: Final = "capacity"
RESYNC: Final = 300.0
"""Seconds between reconciles of every node, changed or not."""
GATHERED: Final = 0.2
"""Seconds to collect changes of a node's cards, which mostly change together."""
AT_ONCE: Final = 32
"""Maximum number of nodes that are primed concurrently."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    options: Options = field(default_factory=lambda: Options(workers=16))
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=Unmeasured)


class CapacityController:
    def __init__(self, sight_: Sight, book: CapacityManager, settings: Settings | None = None) -> None:
        self._sight = sight_
        self._book = book
        self._settings = settings or Settings()
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, gauge=self._settings.gauge
        )
        sources = sight_.sources
        self.controller.watch(sources.nodes.store, sources.nodes.cache, lambda node: (node.metadata.name,))
        devices = sources.devices
        self.controller.watch(devices.store, devices.cache, sight.node_of_device, within=GATHERED)
        self.controller.watch(sources.pools.store, sources.pools.cache, sight_.nodes_with)
        inventories = sources.inventories
        self.controller.watch(
            inventories.store, inventories.cache, lambda inventory: (inventory.metadata.name,)
        )
        # A ledger is opened with the node's pods and Reservations: their caches must have synced before that,
        # but their changes enqueue no key.
        self.controller.watch(sources.pods.store, sources.pods.cache, lambda _: ())
        self.controller.watch(sources.reservations.store, sources.reservations.cache, lambda _: ())

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        unsubscribe = self._book.subscribe(self._ledger_changed)
        waking = asyncio.create_task(self._wake_all())
        try:
            await self.controller.run(stop, authority)
        finally:
            waking.cancel()
            unsubscribe()

    async def _wake_all(self) -> None:
        """Enqueue every ledger periodically, including those of deleted nodes."""
        while True:
            for node in tuple(self._book.nodes()):
                self.controller.add(node)
            await asyncio.sleep(RESYNC)

    async def prime(self) -> None:
        """Reconcile every node once, so that all ledgers are open before the process serves."""
        await self._sight.complete()
        slots = asyncio.Semaphore(AT_ONCE)

        async def reconcile(node: str) -> None:
            async with slots:
                await self.reconcile(node)

        async with asyncio.TaskGroup() as group:
            for node in sorted(self._sight.nodes() | set(self._book.nodes())):
                group.create_task(reconcile(node))

    async def reconcile(self, node: str) -> Result:
        report = self._sight.report(node)
        held = self._book.ledger(node)
        if held is None:
            return await self._open(report)
        change = _refitted(report)
        if change(held) != held:
            log.info("updating the cards in the ledger", node=node)
            await self._amend(node, change)
        if not report.present and not held.holders():
            await self._book.close(node)
        return DONE

    async def _open(self, report: Report) -> Result:
        if not report.present:
            return DONE
        rebuilt = self._rebuilt(report)
        if not rebuilt.ledger.cards:
            return DONE
        for finding in rebuilt.findings:
            log.warning(finding.message, finding=finding.kind, node=report.node)
        await self._book.open(report.node, rebuilt.ledger)
        log.info("opened a ledger", node=report.node, cards=len(rebuilt.ledger.cards))
        return Result(again_after=0)  # an already existing ledger may have other cards

    def _rebuilt(self, report: Report) -> Rebuilt:
        pods, pledges = self._sight.pods_on(report.node), self._sight.pledges(report.node)
        live = [pod for pod in pods if not pod.finished]
        grants = (*(pod.grant for pod in live), *(pledge.grant for pledge in pledges))
        cards = capacity.count(report, (part for grant in grants for part in grant)).cards
        return rebuild.rebuild(report.node, cards, live, pledges, self._settings.clock.now())

    async def _amend(self, node: str, change: Callable[[Ledger], Ledger]) -> None:
        try:
            await self._book.amend(node, change)
        except UnknownNode:
            self.controller.add(node)  # the ledger was just closed

    def _ledger_changed(self, node: str) -> None:
        """Close the ledger of a deleted node with its last holder; reopen a ledger that was deleted."""
        if self._sight.node(node) is None or self._book.ledger(node) is None:
            self.controller.add(node)


def _refitted(report: Report) -> Callable[[Ledger], Ledger]:
    return lambda held: refit.refit(held, report)
