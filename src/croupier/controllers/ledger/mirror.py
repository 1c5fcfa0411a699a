"""Keeps the mirrors: Reservations that show what placed pods hold (`reservations.mirror`).

The key is the node. Changes of a ledger are collected for a moment, so mirrors are written after the
Binding and never delay it. While mirrors are off, those that exist are deleted.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import structlog

from croupier.api.kinds import RESERVATIONS
from croupier.api.mps import Reservation
from croupier.api.mps.reservation import MIRROR, RELEASE_FINALIZER
from croupier.capacity.manager import CapacityManager
from croupier.controllers.ledger import reservation_convert as wire
from croupier.core.claims import mirror
from croupier.core.claims.mirror import (
    CreateMirror,
    DeleteMirror,
    ExistingMirror,
    MirrorStep,
    PlacementMirror,
    ReportMirror,
    UnmarkMirror,
)
from croupier.core.claims.reservation_inputs import ReservationOutcome
from croupier.kube.cache import store
from croupier.kube.cache.informer import Informer
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import AlreadyExists, NotFound
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "reservation-mirror"
DEBOUNCE: Final = 2.0
"""Seconds to collect changes of a ledger."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    enabled: bool = False
    keep: timedelta = timedelta(minutes=10)
    """How long a Released mirror is kept."""
    debounce: float = DEBOUNCE
    options: ControllerOptions = field(default_factory=ControllerOptions)
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


class MirrorController:
    """`mirrors` are the Reservations with the label. The caller fences `api` if there is leader election."""

    def __init__(
        self,
        mirrors: Informer[Reservation],
        api: Client,
        *,
        manager: CapacityManager,
        settings: MirrorOptions,
    ) -> None:
        self._api = api
        self._manager = manager
        self._settings = settings
        self._by_node = mirrors.store.index(_node)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, settings.options, metrics=settings.metrics
        )
        self.controller.watch(mirrors.store, mirrors.cache, _node, within=settings.debounce)

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        unsubscribe = self._manager.subscribe(self._ledger_changed)
        waking = asyncio.create_task(self._enqueue_all())
        try:
            with store.open_indexes(self._by_node):
                await self.controller.run(stop, leader_check)
        finally:
            waking.cancel()
            unsubscribe()

    async def _enqueue_all(self) -> None:
        await asyncio.sleep(0)  # until the controller runs
        for node in tuple(self._manager.nodes()):
            self._ledger_changed(node)

    async def reconcile(self, node: str) -> Result:
        ledger = self._manager.ledger(node) if self._settings.enabled else None
        found = {item.metadata.key: item for item in self._by_node.get(node)}
        plan = mirror.plan(
            mirror.placements(ledger) if ledger is not None else (),
            {key: _existing(item) for key, item in found.items()},
            self._settings.clock.now(),
            keep=self._settings.keep if self._settings.enabled else timedelta(),
        )
        await concurrency.gather_limited(self._take(step, node, found) for step in plan.steps)
        return Result(plan.again_after) if plan.again_after is not None else DONE

    async def _take(self, step: MirrorStep, node: str, found: dict[str, Reservation]) -> None:
        try:
            match step:
                case CreateMirror(mirror=wanted):
                    await self._create(node, wanted)
                case ReportMirror(key=key, outcome=outcome):
                    await self._report(node, found[key], outcome)
                case DeleteMirror(key=key):
                    await self._delete(node, found[key])
                case UnmarkMirror(key=key):
                    await self._unmark(node, found[key])
        except NotFound:
            return  # the mirror or its namespace was just deleted

    async def _create(self, node: str, wanted: PlacementMirror) -> None:
        body = {
            "metadata": {"name": wanted.name, "namespace": wanted.namespace, "labels": {MIRROR: "true"}},
            "spec": {
                "podKey": wanted.pod,
                "nodeName": wanted.node,
                "numCards": len(wanted.cards),
                "percentPerCard": wanted.percent,
            },
        }
        try:
            made = await self._api.create(RESERVATIONS, body)
        except AlreadyExists:
            log.info(
                f"Reservation {wanted.key} exists already, so the pod of this name gets no mirror",
                reservation=wanted.key,
            )
            return
        self.controller.wrote(node, RESERVATIONS, made)
        await self._report(node, made, wanted.outcome)

    async def _report(self, node: str, item: Reservation, outcome: ReservationOutcome) -> None:
        status = wire.next_status(item, outcome, self._settings.clock.now())
        if status != item.status:
            await self._patch(node, item, wire.patch(item, status), "status")

    async def _unmark(self, node: str, item: Reservation) -> None:
        await self._patch(node, item, {"metadata": {"labels": {MIRROR: None}}})
        self.controller.deleted(node, RESERVATIONS, item)  # as the informer of mirrors sees it

    async def _delete(self, node: str, item: Reservation) -> None:
        meta = item.metadata
        how = DeleteOptions(uid=meta.uid)
        await self._api.delete(RESERVATIONS, meta.name, namespace=meta.namespace, how=how)
        self.controller.deleted(node, RESERVATIONS, item)

    async def _patch(
        self, node: str, item: Reservation, patch: dict[str, object], subresource: str | None = None
    ) -> None:
        meta = item.metadata
        written = await self._api.patch(
            RESERVATIONS, meta.name, patch, namespace=meta.namespace, subresource=subresource
        )
        if MIRROR in written.metadata.labels:
            self.controller.wrote(node, RESERVATIONS, written)

    def _ledger_changed(self, node: str) -> None:
        if self._settings.enabled:
            self.controller.add(node, within=self._settings.debounce)


def _node(item: Reservation) -> tuple[str, ...]:
    return (item.spec.node_name,)


def _existing(item: Reservation) -> ExistingMirror:
    status = item.status
    holds = RELEASE_FINALIZER in item.metadata.finalizers
    return ExistingMirror(item.metadata.key, status.phase, status.last_update_time, holds)
