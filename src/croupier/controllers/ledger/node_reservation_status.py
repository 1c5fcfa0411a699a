"""Writes what is derived from a NodeReservation: the result of the audit, and a summary that is missing.

The status is informative; no decision depends on it. Every write of it makes the next write of the ledger
fail its compare-and-swap. So it is written only after an audit that compared other content or found something
else, which is at most once per audit.

The summary is part of every write of the ledger. It is repaired here if another program wrote the ledger: an
earlier version of Croupier, or a person.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from croupier.api.kinds import NODE_RESERVATIONS
from croupier.api.mps import NodeReservation, ledger_codec, ledger_status, ledger_summary
from croupier.api.mps.ledger import IDENTITY_FIELDS
from croupier.capacity.manager import CapacityManager, UnknownNode
from croupier.controllers.ledger.audit_findings import AuditFindings, AuditResult
from croupier.core.ledger.ledger import Ledger
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
    options: ControllerOptions = field(default_factory=ControllerOptions)
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


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
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, metrics=self._settings.metrics
        )
        self.controller.watch(records.store, records.cache, lambda record: (record.metadata.name,))

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        unsubscribe = self._audit_findings.subscribe(self.controller.add)
        try:
            await self.controller.run(stop, leader_check)
        finally:
            unsubscribe()

    async def reconcile(self, node: str) -> Result:
        record = self._records.store.named(node)
        if record is None:
            return DONE
        if not ledger_summary.is_current(record.spec, ledger_codec.decode(node, record.spec)):
            with suppress(UnknownNode):
                await self._manager.amend(node, _unchanged)  # a write adds the summary
        result = self._audit_findings.result(node)
        if result is not None and self._status(record, result) != record:
            await self._write(node, result)
        return DONE

    def _status(self, record: NodeReservation, result: AuditResult) -> NodeReservation:
        """The record with the status after this audit."""
        now = self._settings.clock.now()
        return replace(record, status=ledger_status.status(record, result.ledger, result.findings, now))

    async def _write(self, node: str, result: AuditResult) -> None:
        raw_kind = NODE_RESERVATIONS.raw
        try:
            raw = await self._api.get(raw_kind, node)
            new = self._status(codec.convert(NodeReservation, raw), result)
            body = merge.typed(raw, new, keys=IDENTITY_FIELDS)
            if body != raw:
                written = await self._api.update(raw_kind, body, subresource="status")
                self.controller.wrote(node, NODE_RESERVATIONS, codec.convert(NodeReservation, written))
        except NotFound:
            return


def _unchanged(ledger: Ledger) -> Ledger:
    return ledger
