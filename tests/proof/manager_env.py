"""The ledger controllers assembled like in the manager, small enough to run many of them.

Intervals are short (resync every second, holds of two seconds), so that processes that take minutes in a
cluster end within a test. `Scope` restricts the caches to one node and namespace, so that many of them can
run on one API server independently.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence, Set
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.quotas import RESOURCE_QUOTAS
from croupier.api.scheduling_v1 import PRIORITY_CLASSES
from croupier.capacity.cluster_view import ClusterView, LedgerInformers
from croupier.capacity.crd import CRDCapacityManager
from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.capacity.manager import CapacityManager
from croupier.capacity.writer import LedgerWriterOptions as WriterRules
from croupier.controllers.ledger import audit, card_sync, holders, node_reservation_status, reservation
from croupier.controllers.ledger.audit import Audit
from croupier.controllers.ledger.card_sync import CardSyncController
from croupier.controllers.ledger.holders import HolderController
from croupier.controllers.ledger.node_reservation_status import NodeReservationStatusController
from croupier.controllers.ledger.reservation import ReservationController
from croupier.controllers.ledger.usage import UsageOptions, UsageRecorder
from croupier.controllers.ledger.usage_metrics import UsageMetrics
from croupier.controllers.ledger.usage_sources import HoldingsReader, StoredLedgerChanges
from croupier.extender.binder import Binder
from croupier.extender.node_ranking import NodeRanking
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.cache.watch_state import ReflectorOptions
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.resource import Resource
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.reconcile import Result
from tests.clocks import OffsetClock
from tests.polling import until

T = TypeVar("T")

TTL = timedelta(seconds=2)
LATER = 10 * TTL
"""How far a full round turns the clock: past the end of everything that is timed."""
RESYNC = 1.0
QUICK = ReflectorOptions(backoff=Backoff(first=0.05, most=0.5))
OPTIONS = ControllerOptions(workers=8, resync=RESYNC, retries=Backoff(first=0.05, most=0.5))
RECONCILERS = ("capacity", "holders", "reservation", "standing")
CONTROLLERS = (*RECONCILERS, "audit")


@dataclass(frozen=True)
class Scope:
    """The node and namespace that the caches contain; everything by default."""

    node: str = ""
    namespace: str = ""

    def selection(self, resource: Resource[Any]) -> Selection:
        if resource.namespaced:
            bound = "spec.nodeName!=" if resource is kinds.PODS else None  # as in the manager
            return Selection(namespace=self.namespace or None, fields=bound)
        whole = not self.node or resource.group == "gpu.deckhouse.io"
        return Selection(fields=None if whole else f"metadata.name={self.node}")


@dataclass
class ReconcileLog:
    """Which keys one controller has reconciled without an error."""

    controller: Controller[str]
    reconciled: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        reconcile = self.controller.reconcile

        async def recorded(key: str) -> Result:
            logs = self.reconciled  # of the round in which this reconcile began
            result = await reconcile(key)
            logs.add(key)
            return result

        self.controller.reconcile = recorded

    async def all_again(self, keys: Set[str]) -> None:
        """Reconcile every key once more."""
        reconciled: set[str] = set()
        self.reconciled = reconciled
        for key in keys:
            self.controller.add(key)
        name = self.controller.name
        await until(lambda: reconciled >= keys, f"controller {name} to reconcile {len(keys)} nodes", 60)


@dataclass
class LedgerManagerEnv:
    api: Client
    recorder: EventRecorder
    scope: Scope = field(default_factory=Scope)
    base_clock: Clock = field(default_factory=SystemClock)
    in_memory: bool = False
    flush_after: float = 0.2
    ttl: timedelta = TTL
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    logs: list[ReconcileLog] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = OffsetClock(self.base_clock)
        self.pods = self._watched(kinds.PODS)
        waiting = Selection(namespace=self.scope.namespace or None, fields="spec.nodeName=")
        self.pending = self._watched(kinds.PODS, waiting)
        self.quotas = self._watched(RESOURCE_QUOTAS)
        self.priorities = self._watched(PRIORITY_CLASSES, Selection())
        self.nodes = self._watched(kinds.NODES)
        self.reservations = self._watched(kinds.RESERVATIONS)
        self.devices = self._watched(kinds.GPU_DEVICES)
        self.pools = self._watched(kinds.GPU_POOLS)
        self.inventories = self._watched(kinds.GPU_NODE_INVENTORIES)
        self.manager = self._book()
        cards = (self.nodes, self.devices, self.pools)
        sources = LedgerInformers(*cards, self.pods, self.reservations, self.inventories)
        self.sight = ClusterView(sources)
        self.index = NodeRanking(self.manager, self.clock, strategy=lambda _wants: "BinPack")
        self.binder = Binder(self.api, self.manager, self.index, self.clock, ttl=self.ttl)

    def _watched(self, resource: Resource[T], selection: Selection | None = None) -> Informer[T]:
        store: Store[T] = Store(resource)
        chosen = selection or self.scope.selection(resource)
        cache = Reflector(self.api, store, selection=chosen, rules=QUICK)
        self.tasks.append(asyncio.create_task(cache.run()))
        return Informer(store, cache)

    def _book(self) -> CapacityManager:
        if self.in_memory:
            return InMemoryCapacityManager(ttl=self.ttl, clock=self.clock)
        self.ledgers = self._watched(kinds.NODE_RESERVATIONS)
        rules = WriterRules(flush_after=self.flush_after)
        return CRDCapacityManager(self.api, self.ledgers.store, ttl=self.ttl, clock=self.clock, rules=rules)

    async def synced(self) -> None:
        """Wait until all caches are synced."""
        await self.sight.complete()
        if not self.in_memory:
            await self.ledgers.cache.synced()

    def capacity(self) -> CardSyncController:
        return CardSyncController(self.sight, self.manager, card_sync.CardSyncOptions(OPTIONS, self.clock))

    def holders(self) -> HolderController:
        settings = holders.HolderOptions(OPTIONS, self.clock, patience=timedelta.max)
        return HolderController(
            self.sight, self.api, manager=self.manager, recorder=self.recorder, settings=settings
        )

    def reservation(self) -> ReservationController:
        seen = reservation.ReservationInformers(self.sight, self.pending, self.quotas, self.priorities)
        settings = reservation.ReservationOptions(options=OPTIONS, clock=self.clock)
        return ReservationController(
            seen, self.api, manager=self.manager, recorder=self.recorder, settings=settings
        )

    def audit(self) -> Audit:
        settings = audit.AuditOptions(every=RESYNC, recheck_delay=0.3, clock=self.clock)
        return Audit(self.sight, self.api, manager=self.manager, recorder=self.recorder, settings=settings)

    def standing(self) -> NodeReservationStatusController:
        settings = node_reservation_status.NodeReservationStatusOptions(OPTIONS, self.clock)
        return NodeReservationStatusController(
            self.ledgers, self.api, manager=self.manager, findings=self.findings, settings=settings
        )

    def usage(self) -> UsageRecorder:
        changes = StoredLedgerChanges(HoldingsReader(self.sight), self.api, QUICK)
        options = UsageOptions("default", retention=35, interval=RESYNC)
        return UsageRecorder(changes, self.api, metrics=UsageMetrics(CollectorRegistry()), options=options)

    def start(self, *parts: str, authority: LeaderCheck = ALWAYS_LEADER) -> None:
        """Run these controllers until `close`, or as long as they have the authority."""
        self.auditor = self.audit()
        self.findings = self.auditor.findings
        made: dict[str, Callable[[], Any]] = {
            "capacity": self.capacity,
            "holders": self.holders,
            "reservation": self.reservation,
            "audit": lambda: self.auditor,
            "standing": self.standing,
            "usage": self.usage,
        }
        for part in parts:
            runnable = made[part]()
            if part in RECONCILERS:
                self.logs.append(ReconcileLog(runnable.controller))
            self.tasks.append(asyncio.create_task(runnable.run(asyncio.Event(), authority)))

    async def full_round(self) -> None:
        """At a later time, audit all nodes and let every running controller reconcile each of them."""
        self.clock.ahead += LATER
        await self.auditor.run_once()
        nodes = frozenset(self.manager.nodes())
        for log in self.logs:
            await log.all_again(nodes)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        for ending in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(ending, Exception):
                raise ending


@contextlib.asynccontextmanager
async def running(
    house: LedgerManagerEnv, parts: Sequence[str] = CONTROLLERS
) -> AsyncIterator[LedgerManagerEnv]:
    """Run the controllers within the block."""
    await house.synced()
    if house.in_memory:
        await house.capacity().prime()
    house.start(*(part for part in parts if part != "standing" or not house.in_memory))
    try:
        yield house
    finally:
        await house.close()
