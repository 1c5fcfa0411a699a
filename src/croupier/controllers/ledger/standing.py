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
from croupier.api.mps import NodeReservation, standing, translate
from croupier.api.mps.ledger import SAME
from croupier.book.manager import CapacityManager
from croupier.controllers.ledger.notes import Notes
from croupier.controllers.watched import Watched
from croupier.kube import codec, draft
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.controller import Controller, Options
from croupier.kube.errors import NotFound
from croupier.kube.reconcile import DONE, Result
from croupier.kube.shift import ANYONE, Authority, Gauge, Unmeasured

NAME: Final = "nodereservation-status"


@dataclass(frozen=True, slots=True)
class Settings:
    calm: float = 30.0
    """Seconds for which a ledger must have been stable."""
    at_most: float = 120.0
    """Seconds after which the status is written even if the ledger keeps changing."""
    options: Options = field(default_factory=Options)
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=Unmeasured)


@dataclass(slots=True)
class _Unrest:
    """Since when the status is outdated, and when the ledger last changed."""

    began: float
    last: float


class Standing:
    """The caller fences `api` if there is leader election."""

    def __init__(
        self,
        records: Watched[NodeReservation],
        api: Client,
        *,
        book: CapacityManager,
        notes: Notes,
        settings: Settings | None = None,
    ) -> None:
        self._records = records
        self._api = api
        self._book = book
        self._notes = notes
        self._settings = settings or Settings()
        self._unrest: dict[str, _Unrest] = {}
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, gauge=self._settings.gauge
        )
        self.controller.watch(records.store, records.cache, lambda record: (record.metadata.name,))

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        endings = (self._book.subscribe(self._changed), self._notes.subscribe(self.controller.add))
        try:
            await self.controller.run(stop, authority)
        finally:
            for end in endings:
                end()

    async def reconcile(self, node: str) -> Result:
        """A ledger that has just changed is delayed; one without a status gets it immediately."""
        record = self._records.store.named(node)
        if record is not None and record.status.cards is not None and (wait := self._wait(node)) > 0:
            return Result(again_after=wait)
        if record is not None and not self._is_told(record):
            await self._write(node)
        self._unrest.pop(node, None)
        return DONE

    def _is_told(self, record: NodeReservation) -> bool:
        return self._status(record) == record

    def _status(self, record: NodeReservation) -> NodeReservation:
        """The record with its computed status."""
        node = record.metadata.name
        held = translate.read(node, record.spec)
        now = self._settings.clock.now()
        return replace(record, status=standing.status(held, self._notes.of(node), record.status, now))

    def _wait(self, node: str) -> float:
        """Seconds until the status may be written."""
        now = self._settings.clock.monotonic()
        unrest = self._unrest.setdefault(node, _Unrest(now, now))
        due = min(unrest.last + self._settings.calm, unrest.began + self._settings.at_most)
        return max(0.0, due - now)

    async def _write(self, node: str) -> None:
        raw_kind = NODE_RESERVATIONS.raw
        try:
            raw = await self._api.get(raw_kind, node)
            new = self._status(codec.convert(NodeReservation, raw))
            body = draft.overlay(raw, new, keys=SAME)
            if body != raw:
                written = await self._api.update(raw_kind, body, subresource="status")
                self.controller.wrote(node, NODE_RESERVATIONS, codec.convert(NodeReservation, written))
        except NotFound:
            return

    def _changed(self, node: str) -> None:
        now = self._settings.clock.monotonic()
        self._unrest.setdefault(node, _Unrest(now, now)).last = now
        self.controller.add(node)
