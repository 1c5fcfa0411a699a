"""Writes NodeReservation.status: the free capacity of the node and the audit's findings.

The status is informative; no decision depends on it. Every write of it makes the next write of the ledger
fail its compare-and-swap. So it is written only if it differs, after the ledger has been stable for a
while, and at the latest after two minutes.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from croupier.api.kinds import NODE_RESERVATIONS
from croupier.api.mps import NodeReservation, ledger_codec, ledger_status
from croupier.api.mps.ledger import IDENTITY_FIELDS
from croupier.capacity.manager import CapacityManager
from croupier.controllers.ledger.audit_findings import AuditFindings
from croupier.kube.cache.informer import Informer
from croupier.kube.client import codec, merge
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import (
    ALWAYS_LEADER,
    LeaderCheck,
)
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "nodereservation-status"


@dataclass(frozen=True, slots=True)
class NodeReservationStatusOptions:
    stable_for: float = 30.0
    """Seconds for which a ledger must have been stable."""
    at_most: float = 120.0
    """Seconds after which the status is written even if the ledger keeps changing."""
    options: ControllerOptions = field(default_factory=ControllerOptions)
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


@dataclass(slots=True)
class _PendingChange:
    """Since when the status is outdated, and when the ledger last changed."""

    began: float
    last: float


class NodeReservationStatusController:
    """The caller fences `api` if there is leader election."""

    def __init__(
        self,
        records: Informer[NodeReservation],
        api: Client,
        *,
        manager: CapacityManager,
        findings: AuditFindings,
        settings: NodeReservationStatusOptions | None = None,
    ) -> None:
        self._records = records
        self._api = api
        self._manager = manager
        self._audit_findings = findings
        self._settings = settings or NodeReservationStatusOptions()
        self._pending: dict[str, _PendingChange] = {}
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, metrics=self._settings.metrics
        )
        self.controller.watch(records.store, records.cache, lambda record: (record.metadata.name,))

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        endings = (
            self._manager.subscribe(self._changed),
            self._audit_findings.subscribe(self.controller.add),
        )
        try:
            await self.controller.run(stop, leader_check)
        finally:
            for end in endings:
                end()

    async def reconcile(self, node: str) -> Result:
        """A ledger that has just changed is delayed; one without a status gets it immediately."""
        record = self._records.store.named(node)
        if record is not None and record.status.cards is not None and (wait := self._wait(node)) > 0:
            return Result(requeue_after=wait)
        if record is not None and not self._is_current(record):
            await self._write(node)
        self._pending.pop(node, None)
        return DONE

    def _is_current(self, record: NodeReservation) -> bool:
        return self._status(record) == record

    def _status(self, record: NodeReservation) -> NodeReservation:
        """The record with its computed status."""
        node = record.metadata.name
        held = ledger_codec.decode(node, record.spec)
        now = self._settings.clock.now()
        return replace(
            record, status=ledger_status.status(held, self._audit_findings.of(node), record.status, now)
        )

    def _wait(self, node: str) -> float:
        """Seconds until the status may be written."""
        now = self._settings.clock.monotonic()
        unrest = self._pending.setdefault(node, _PendingChange(now, now))
        due = min(unrest.last + self._settings.stable_for, unrest.began + self._settings.at_most)
        return max(0.0, due - now)

    async def _write(self, node: str) -> None:
        raw_kind = NODE_RESERVATIONS.raw
        try:
            raw = await self._api.get(raw_kind, node)
            new = self._status(codec.convert(NodeReservation, raw))
            body = merge.typed(raw, new, keys=IDENTITY_FIELDS)
            if body != raw:
                written = await self._api.update(raw_kind, body, subresource="status")
                self.controller.wrote(node, NODE_RESERVATIONS, codec.convert(NodeReservation, written))
        except NotFound:
            return

    def _changed(self, node: str) -> None:
        now = self._settings.clock.monotonic()
        self._pending.setdefault(node, _PendingChange(now, now)).last = now
        self.controller.add(node)
