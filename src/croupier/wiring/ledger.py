"""The controllers of the ledger, and the CRD capacity manager."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

import structlog

from croupier.api import kinds
from croupier.api import settings as spans
from croupier.api.gpu import GPUPool
from croupier.api.mps import NodeReservation
from croupier.api.mps.reservation import MIRROR
from croupier.api.quotas import RESOURCE_QUOTAS
from croupier.api.scheduling_v1 import PRIORITY_CLASSES
from croupier.api.settings import Configuration
from croupier.capacity import exclusion
from croupier.capacity.cluster_view import ClusterView, LedgerInformers
from croupier.capacity.crd import CRDCapacityManager
from croupier.capacity.exclusion import OtherManagerActive, SharedLease
from croupier.capacity.manager import CapacityManager
from croupier.capacity.metrics import LedgerWriteMetrics
from croupier.capacity.writer import LedgerWriterOptions as WriterRules
from croupier.controllers.ledger import audit as auditing
from croupier.controllers.ledger import (
    card_sync,
    holders,
    mirror,
    node_reservation_status,
    occupancy,
    reservation,
)
from croupier.controllers.ledger.audit import Audit
from croupier.controllers.ledger.audit_metrics import AuditMetrics
from croupier.controllers.ledger.card_sync import CardSyncController
from croupier.controllers.ledger.holders import HolderController
from croupier.controllers.ledger.mirror import MirrorController
from croupier.controllers.ledger.node_reservation_status import NodeReservationStatusController
from croupier.controllers.ledger.occupancy import OccupancyController
from croupier.controllers.ledger.reservation import ReservationController
from croupier.controllers.ledger.reservation_metrics import ReservationMetrics
from croupier.controllers.ledger.unschedulable_pods import UnschedulablePodRequeuer
from croupier.controllers.ledger.usage import UsageOptions, UsageRecorder
from croupier.controllers.ledger.usage_metrics import UsageMetrics
from croupier.controllers.ledger.usage_sources import (
    HoldingsReader,
    InMemoryLedgerChanges,
    LedgerChanges,
    StoredLedgerChanges,
)
from croupier.core.cards import lifecycle
from croupier.core.claims.budget import ReservationLimits
from croupier.kube.cache.informer import Informer
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import KubeError
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.leader_election import Leadership
from croupier.kube.serving import component_runner
from croupier.kube.serving.component_runner import Component
from croupier.wiring.process_context import (
    BOUND_PODS,
    DECIDED_RESERVATIONS,
    PENDING_PODS,
    SHUTDOWN_TIMEOUT,
    InformerFactory,
    ProcessContext,
    Runnable,
    run_all,
)

REPORTER: Final = lifecycle.LEDGER
"""The reporting controller of Events."""
GUARD_INTERVAL: Final = 5.0
"""Seconds between checks for an active InMemory capacity manager."""

log = structlog.get_logger(__name__)


class LedgerControllers:
    """The controllers of the ledger, for either capacity manager, which run under `lease`."""

    def __init__(self, context: ProcessContext, caches: InformerFactory, lease: str) -> None:
        self._context = context
        self._sources = LedgerInformers(
            nodes=caches.follow(kinds.NODES),
            devices=caches.follow(kinds.GPU_DEVICES),
            pools=caches.follow(kinds.GPU_POOLS),
            pods=caches.follow(kinds.PODS, BOUND_PODS),
            reservations=caches.follow(kinds.RESERVATIONS, DECIDED_RESERVATIONS),
            inventories=caches.follow(kinds.GPU_NODE_INVENTORIES),
        )
        mirrors = Selection(labels=MIRROR)
        self._mirrors = caches.follow(kinds.RESERVATIONS, mirrors, name="mirrors of placements")
        self._pending = caches.follow(kinds.PODS, PENDING_PODS, name="pending pods")
        self._quotas = caches.follow(RESOURCE_QUOTAS)
        self._priorities = caches.follow(PRIORITY_CLASSES)
        smallest = context.settings.configuration.sharing.min_percent
        self._view = ClusterView(self._sources, smallest=smallest)
        registry = context.leader_registry(lease)
        self._outcomes = ReservationMetrics(registry, self._sources.reservations.store)
        self._audit_metrics = AuditMetrics(registry)
        self._usage_metrics = UsageMetrics(registry)
        self._events = EventRecorder(context.api, REPORTER, metrics=context.metrics.events)

    @property
    def pools(self) -> Informer[GPUPool]:
        return self._sources.pools

    def events(self) -> Component:
        return Component("events", self._events.run)

    async def open(self, manager: CapacityManager) -> None:
        """Open the ledgers of all nodes, before the process starts serving."""
        await self._cards(manager).prime()

    async def run(
        self,
        manager: CapacityManager,
        leadership: Leadership,
        stop: asyncio.Event,
        *,
        records: Informer[NodeReservation] | None = None,
    ) -> None:
        """Run during one leadership, or until `stop`; with `records`, write their status too.

        The controllers are replaced when a setting that they depend on changes.
        """

        async def work(ending: asyncio.Event, configuration: Configuration) -> None:
            controllers = self._controllers(manager, leadership, configuration, records)
            await run_all(controllers, leadership, ending)

        await self._context.live_settings.run_with(
            work, stop, lambda settings: (settings.reservations, settings.usage)
        )

    def _controllers(
        self,
        manager: CapacityManager,
        leadership: Leadership,
        configuration: Configuration,
        records: Informer[NodeReservation] | None,
    ) -> list[Runnable]:
        api = self._context.api.fenced(leadership.require)
        audit = self._audit(manager, api)
        controllers: list[Runnable] = [
            self._cards(manager),
            self._holders(manager, api),
            self._reservations(manager, api),
            self._occupancy(manager, api),
            UnschedulablePodRequeuer(self._pending, self._sources.nodes, api, api.clock),
            audit,
            self._usage(manager, api, configuration, stored=records is not None),
            self._mirror(manager, api, configuration),
        ]
        if records is not None:
            metrics = self._context.metrics.controller(node_reservation_status.NAME)
            settings = node_reservation_status.NodeReservationStatusOptions(clock=api.clock, metrics=metrics)
            controllers.append(
                NodeReservationStatusController(
                    records, api, manager=manager, findings=audit.findings, settings=settings
                )
            )
        return controllers

    def _cards(self, manager: CapacityManager) -> CardSyncController:
        settings = card_sync.CardSyncOptions(
            clock=self._context.api.clock, metrics=self._context.metrics.controller(card_sync.NAME)
        )
        return CardSyncController(self._view, manager, settings)

    def _holders(self, manager: CapacityManager, api: Client) -> HolderController:
        metrics = self._context.metrics.controller(holders.NAME)
        settings = holders.HolderOptions(clock=api.clock, metrics=metrics)
        return HolderController(self._view, api, manager=manager, recorder=self._events, settings=settings)

    def _occupancy(self, manager: CapacityManager, api: Client) -> OccupancyController:
        metrics = self._context.metrics.controller(occupancy.NAME)
        settings = occupancy.OccupancyOptions(clock=api.clock, metrics=metrics)
        return OccupancyController(self._view, api, manager=manager, settings=settings)

    def _reservations(self, manager: CapacityManager, api: Client) -> ReservationController:
        settings = reservation.ReservationOptions(
            strategy=self._context.settings.strategy,
            clock=api.clock,
            limits=lambda: reservation_limits(self._context),
            outcomes=self._outcomes,
            metrics=self._context.metrics.controller(reservation.NAME),
        )
        sources = reservation.ReservationInformers(self._view, self._pending, self._quotas, self._priorities)
        return ReservationController(sources, api, manager=manager, recorder=self._events, settings=settings)

    def _mirror(
        self, manager: CapacityManager, api: Client, configuration: Configuration
    ) -> MirrorController:
        settings = mirror.MirrorOptions(
            enabled=configuration.reservations.mirror == "On",
            keep=timedelta(seconds=spans.seconds(configuration.reservations.mirror_keep)),
            clock=api.clock,
            metrics=self._context.metrics.controller(mirror.NAME),
        )
        return MirrorController(self._mirrors, api, manager=manager, settings=settings)

    def _usage(
        self, manager: CapacityManager, api: Client, configuration: Configuration, *, stored: bool
    ) -> UsageRecorder:
        namespace, reader = self._context.settings.namespace, HoldingsReader(self._view)
        changes: LedgerChanges = (
            StoredLedgerChanges(reader, api) if stored else InMemoryLedgerChanges(reader, manager, api.clock)
        )
        options = UsageOptions(namespace, spans.days(configuration.usage.retention))
        return UsageRecorder(changes, api, metrics=self._usage_metrics, options=options)

    def _audit(self, manager: CapacityManager, api: Client) -> Audit:
        settings = auditing.AuditOptions(clock=api.clock, metrics=self._audit_metrics)
        return Audit(self._view, api, manager=manager, recorder=self._events, settings=settings)


def reservation_limits(context: ProcessContext) -> ReservationLimits:
    """The limits by the current settings."""
    chosen = context.live_settings.configuration.reservations
    return ReservationLimits(
        chosen.max_per_namespace,
        chosen.max_cards_per_namespace,
        spans.seconds(chosen.max_ttl),
        spans.seconds(chosen.default_ttl),
    )


async def flush(manager: CRDCapacityManager) -> None:
    """Write the queued changes, for a bounded time: a process that lost the lease must not wait longer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SHUTDOWN_TIMEOUT):
            await manager.finish()


async def exclude_in_memory_manager(context: ProcessContext) -> list[Component]:
    """Return what keeps an InMemory capacity manager away while this process runs; raise if one is active.

    The Lease is written between two checks: the first leaves no trace of a process that refuses to start, the
    second finds a manager that became active at the same time.
    """
    api, namespace = context.lease_client(), context.settings.namespace
    shared = SharedLease(api, namespace, clock=api.clock)
    await exclusion.ensure_inactive(api, namespace, "InMemory")
    await shared.renew()
    await exclusion.ensure_inactive(api, namespace, "InMemory")
    return [
        component_runner.until_cancelled(
            "capacity manager lease", lambda: _repeat(shared.renew, exclusion.RENEW_INTERVAL)
        ),
        component_runner.until_cancelled(
            "capacity manager guard",
            lambda: _repeat(lambda: exclusion.ensure_inactive(api, namespace, "InMemory"), GUARD_INTERVAL),
        ),
    ]


async def _repeat(step: Callable[[], Awaitable[object]], interval: float) -> None:
    """Repeat `step` until it finds another capacity manager active."""
    while True:
        await asyncio.sleep(interval)
        try:
            await step()
        except OtherManagerActive:
            raise
        except KubeError as error:
            log.warning(
                f"the process cannot check for an active InMemory capacity manager: {error}", error=str(error)
            )


def crd_manager(
    context: ProcessContext,
    ledgers: Informer[NodeReservation],
    metrics: LedgerWriteMetrics,
    api: Client,
    *,
    rules: WriterRules | None = None,
) -> CRDCapacityManager:
    settings = context.settings
    return CRDCapacityManager(
        api, ledgers.store, strategy=settings.strategy, ttl=settings.ttl, metrics=metrics, rules=rules
    )
