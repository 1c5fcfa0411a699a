"""The ledger controllers assembled like in the manager, small enough to run many of them.

Intervals are short (resync every second, holds of two seconds), so that processes that take minutes in a
cluster end within a test. `Scope` restricts the caches to one node and namespace, so that many of them can
run on one API server independently.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from croupier.api import kinds
from croupier.book.crd import CRDCapacityManager
from croupier.book.manager import CapacityManager
from croupier.book.memory import InMemoryCapacityManager
from croupier.book.writer import Rules as WriterRules
from croupier.controllers.ledger import audit, capacity, holders, reservation, standing
from croupier.controllers.ledger.audit import Audit
from croupier.controllers.ledger.capacity import CapacityController
from croupier.controllers.ledger.holders import HolderController
from croupier.controllers.ledger.reservation import ReservationController
from croupier.controllers.ledger.sight import Sight, Sources
from croupier.controllers.ledger.standing import Standing
from croupier.controllers.watched import Watched
from croupier.extender.binder import Binder
from croupier.extender.index import Index
from croupier.kube.backoff import Backoff
from croupier.kube.client import Client, Selection
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.controller import Options
from croupier.kube.events import Recorder
from croupier.kube.reflector import Reflector
from croupier.kube.resource import Resource
from croupier.kube.resumption import Rules
from croupier.kube.shift import ANYONE, Authority
from croupier.kube.store import Store

T = TypeVar("T")

TTL = timedelta(seconds=2)
RESYNC = 1.0
QUICK = Rules(backoff=Backoff(first=0.05, most=0.5))
OPTIONS = Options(workers=8, resync=RESYNC, retries=Backoff(first=0.05, most=0.5))
PARTS = ("capacity", "holders", "reservation", "audit", "standing")


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
class House:
    api: Client
    recorder: Recorder
    scope: Scope = field(default_factory=Scope)
    clock: Clock = field(default_factory=SystemClock)
    in_memory: bool = False
    linger: float = 0.2
    ttl: timedelta = TTL
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pods = self._watched(kinds.PODS)
        self.nodes = self._watched(kinds.NODES)
        self.reservations = self._watched(kinds.RESERVATIONS)
        self.devices = self._watched(kinds.GPU_DEVICES)
        self.pools = self._watched(kinds.GPU_POOLS)
        self.inventories = self._watched(kinds.GPU_NODE_INVENTORIES)
        self.book = self._book()
        cards = (self.nodes, self.devices, self.pools)
        sources = Sources(*cards, self.pods, self.reservations, self.inventories)
        self.sight = Sight(sources)
        self.index = Index(self.book, self.clock, strategy=lambda _wants: "BinPack")
        self.binder = Binder(self.api, self.book, self.index, self.clock, ttl=self.ttl)

    def _watched(self, resource: Resource[T]) -> Watched[T]:
        store: Store[T] = Store(resource)
        cache = Reflector(self.api, store, selection=self.scope.selection(resource), rules=QUICK)
        self.tasks.append(asyncio.create_task(cache.run()))
        return Watched(store, cache)

    def _book(self) -> CapacityManager:
        if self.in_memory:
            return InMemoryCapacityManager(ttl=self.ttl, clock=self.clock)
        self.ledgers = self._watched(kinds.NODE_RESERVATIONS)
        rules = WriterRules(linger=self.linger)
        return CRDCapacityManager(self.api, self.ledgers.store, ttl=self.ttl, clock=self.clock, rules=rules)

    async def synced(self) -> None:
        """Wait until all caches are synced."""
        await self.sight.complete()
        if not self.in_memory:
            await self.ledgers.cache.synced()

    def capacity(self) -> CapacityController:
        return CapacityController(self.sight, self.book, capacity.Settings(OPTIONS, self.clock))

    def holders(self) -> HolderController:
        settings = holders.Settings(OPTIONS, self.clock, patience=timedelta.max)
        return HolderController(
            self.sight, self.api, book=self.book, recorder=self.recorder, settings=settings
        )

    def reservation(self) -> ReservationController:
        seen = reservation.Sources(self.reservations, self.pods, self.nodes)
        settings = reservation.Settings(options=OPTIONS, clock=self.clock)
        return ReservationController(
            seen, self.api, book=self.book, recorder=self.recorder, settings=settings
        )

    def audit(self) -> Audit:
        settings = audit.Settings(every=RESYNC, second_look=0.3, clock=self.clock)
        return Audit(self.sight, self.api, book=self.book, recorder=self.recorder, settings=settings)

    def standing(self) -> Standing:
        settings = standing.Settings(calm=0.3, at_most=2.0, options=OPTIONS, clock=self.clock)
        return Standing(self.ledgers, self.api, book=self.book, notes=self.notes, settings=settings)

    def start(self, *parts: str, authority: Authority = ANYONE) -> None:
        """Run these controllers until `close`, or as long as they have the authority."""
        auditor = self.audit()
        self.notes = auditor.notes
        made: dict[str, Callable[[], Any]] = {
            "capacity": self.capacity,
            "holders": self.holders,
            "reservation": self.reservation,
            "audit": lambda: auditor,
            "standing": self.standing,
        }
        for part in parts:
            self.tasks.append(asyncio.create_task(made[part]().run(asyncio.Event(), authority)))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        for ending in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(ending, Exception):
                raise ending


@contextlib.asynccontextmanager
async def living(house: House, parts: Sequence[str] = PARTS) -> AsyncIterator[House]:
    """Run the controllers within the block."""
    await house.synced()
    if house.in_memory:
        await house.capacity().prime()
    house.start(*(part for part in parts if part != "standing" or not house.in_memory))
    try:
        yield house
    finally:
        await house.close()
