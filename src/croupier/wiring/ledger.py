"""The controllers of the ledger, and the CRD capacity manager."""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from croupier.api import kinds
from croupier.api.gpu import GPUPool
from croupier.api.mps import NodeReservation
from croupier.book import switch
from croupier.book.crd import CRDCapacityManager
from croupier.book.manager import CapacityManager
from croupier.book.metrics import LedgerMetrics
from croupier.book.switch import BookKept
from croupier.book.writer import Rules as WriterRules
from croupier.controllers.ledger import audit as auditing
from croupier.controllers.ledger import capacity, holders, occupancy, reservation, standing
from croupier.controllers.ledger.audit import Audit
from croupier.controllers.ledger.audit_metrics import AuditMetrics
from croupier.controllers.ledger.capacity import CapacityController
from croupier.controllers.ledger.holders import HolderController
from croupier.controllers.ledger.occupancy import Occupancy
from croupier.controllers.ledger.reservation import ReservationController
from croupier.controllers.ledger.reservation_metrics import ReservationMetrics
from croupier.controllers.ledger.sight import Sight, Sources
from croupier.controllers.ledger.sleepers import Sleepers
from croupier.controllers.ledger.standing import Standing
from croupier.controllers.watched import Watched
from croupier.kube import run
from croupier.kube.client import Client
from croupier.kube.elector import Leadership
from croupier.kube.errors import KubeError
from croupier.kube.events import Recorder
from croupier.kube.run import Part
from croupier.wiring.surface import BOUND_PODS, FAREWELL, PENDING_PODS, Caches, Keeper, Surface, all_of

REPORTER: Final = "croupier-ledger"
"""The reporting controller of Events."""
GUARD: Final = 5.0
"""Seconds between checks for an active InMemory capacity manager."""

log = structlog.get_logger(__name__)


class LedgerKeepers:
    """The controllers of the ledger, for either capacity manager."""

    def __init__(self, surface: Surface, caches: Caches) -> None:
        self._surface = surface
        self._sources = Sources(
            nodes=caches.follow(kinds.NODES),
            devices=caches.follow(kinds.GPU_DEVICES),
            pools=caches.follow(kinds.GPU_POOLS),
            pods=caches.follow(kinds.PODS, BOUND_PODS),
            reservations=caches.follow(kinds.RESERVATIONS),
            inventories=caches.follow(kinds.GPU_NODE_INVENTORIES),
        )
        self._pending = caches.follow(kinds.PODS, PENDING_PODS, name="pending pods")
        self._sight = Sight(self._sources)
        self._counts = ReservationMetrics(surface.metrics.registry, self._sources.reservations.store)
        self._findings = AuditMetrics(surface.metrics.registry)
        self._events = Recorder(surface.api, REPORTER, gauge=surface.metrics)

    @property
    def pools(self) -> Watched[GPUPool]:
        return self._sources.pools

    def events(self) -> Part:
        return Part("events", self._events.run)

    async def open(self, book: CapacityManager) -> None:
        """Open the ledgers of all nodes, before the process starts serving."""
        await self._cards(book).prime()

    async def run(
        self,
        book: CapacityManager,
        term: Leadership,
        stop: asyncio.Event,
        *,
        records: Watched[NodeReservation] | None = None,
    ) -> None:
        """Run during one leadership, or until `stop`; with `records`, write their status too."""
        api = self._surface.api.fenced(term.require)
        audit = self._audit(book, api)
        controllers: list[Keeper] = [
            self._cards(book),
            self._holders(book, api),
            self._reservations(book, api),
            self._occupancy(book, api),
            Sleepers(self._pending, self._sources.nodes, api),
            audit,
        ]
        if records is not None:
            gauge = self._surface.metrics.controller(standing.NAME)
            settings = standing.Settings(gauge=gauge)
            controllers.append(Standing(records, api, book=book, notes=audit.notes, settings=settings))
        await all_of(controllers, term, stop)

    def _cards(self, book: CapacityManager) -> CapacityController:
        gauge = self._surface.metrics.controller(capacity.NAME)
        return CapacityController(self._sight, book, capacity.Settings(gauge=gauge))

    def _holders(self, book: CapacityManager, api: Client) -> HolderController:
        settings = holders.Settings(gauge=self._surface.metrics.controller(holders.NAME))
        return HolderController(self._sight, api, book=book, recorder=self._events, settings=settings)

    def _occupancy(self, book: CapacityManager, api: Client) -> Occupancy:
        settings = occupancy.Settings(gauge=self._surface.metrics.controller(occupancy.NAME))
        return Occupancy(self._sight, api, book=book, settings=settings)

    def _reservations(self, book: CapacityManager, api: Client) -> ReservationController:
        settings = reservation.Settings(
            strategy=self._surface.settings.strategy,
            counts=self._counts,
            gauge=self._surface.metrics.controller(reservation.NAME),
        )
        informers = self._sources
        sources = reservation.Sources(informers.reservations, informers.pods, informers.nodes)
        return ReservationController(sources, api, book=book, recorder=self._events, settings=settings)

    def _audit(self, book: CapacityManager, api: Client) -> Audit:
        settings = auditing.Settings(gauge=self._findings)
        return Audit(self._sight, api, book=book, recorder=self._events, settings=settings)


async def finish(book: CRDCapacityManager) -> None:
    """Write the queued changes, for a bounded time: a process that lost the lease must not wait longer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL):
            await book.finish()


def guard(surface: Surface) -> Part:
    """End the process when an InMemory capacity manager becomes active: the two exclude each other."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(GUARD)
            try:
                await switch.guard(surface.api, surface.settings.namespace)
            except BookKept:
                raise
            except KubeError as error:
                log.warning("cannot check for an active InMemory capacity manager", error=str(error))

    return run.endless("capacity manager guard", watch)


def shared(
    surface: Surface,
    ledgers: Watched[NodeReservation],
    figures: LedgerMetrics,
    api: Client,
    *,
    rules: WriterRules | None = None,
) -> CRDCapacityManager:
    settings = surface.settings
    return CRDCapacityManager(
        api, ledgers.store, strategy=settings.strategy, ttl=settings.ttl, gauge=figures, rules=rules
    )
