"""The capacity manager that stores ledgers in the API server: one NodeReservation per node, many writers.

Compare-and-swap on each object prevents overcommitting; processes need no other coordination.
Reads cost no request: the ledgers come from the watch and are never older than our own writes.
"""

import asyncio
import random
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import cast

from croupier.api.mps import NodeReservation
from croupier.capacity import batching, manager
from croupier.capacity.batching import AmendChange, ReleaseChange
from croupier.capacity.cached_ledger import CachedLedger
from croupier.capacity.manager import STRATEGY, TTL
from croupier.capacity.manager import LedgerFunction as LedgerChange
from croupier.capacity.metrics import LedgerWriteMetrics, NoLedgerWriteMetrics
from croupier.capacity.subscribers import Subscribers
from croupier.capacity.writer import LedgerWriter, LedgerWriterOptions, WriterContext
from croupier.core.claims.claim import CardClaim
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import Grant
from croupier.core.model.refusal import Refusal
from croupier.core.placement.placement import Strategy
from croupier.kube.cache.store import ObjectChange, Store
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock


class CRDCapacityManager:
    def __init__(  # noqa: PLR0913  # two dependencies, the rest are options with defaults
        self,
        api: Client,
        store: Store[NodeReservation],
        *,
        strategy: Strategy = STRATEGY,
        ttl: timedelta = TTL,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
        gauge: LedgerWriteMetrics | None = None,
        rules: LedgerWriterOptions | None = None,
    ) -> None:
        self._strategy = strategy
        self._ttl = ttl
        self._clock = clock or SystemClock()
        self._context = WriterContext(
            api,
            self._clock,
            chance,
            gauge or NoLedgerWriteMetrics(),
            rules or LedgerWriterOptions(),
            self._refresh,
        )
        self._cached: dict[str, CachedLedger] = {}
        self._writers: dict[str, LedgerWriter] = {}
        self._views: dict[str, Ledger] = {}
        self._subscribers = Subscribers()
        for stored in store:
            self._show(stored)
        self._unsubscribe = store.subscribe(self._changed, relisted=self._relisted)

    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refusal:
        until = self._clock.now() + self._ttl
        return await self.claim(node, manager.hold_claim(pod, cards=cards, percent=percent, until=until))

    async def claim(self, node: str, claim: CardClaim, strategy: Strategy | None = None) -> Grant | Refusal:
        take = batching.claim_change(claim, strategy or self._strategy)
        return cast("Grant | Refusal", await self._writer(node).submit(take))

    async def release(self, pod: str, node: str) -> None:
        await self._writer(node).submit(ReleaseChange(pod))

    async def amend(self, node: str, change: LedgerChange, *, lazy: bool = False) -> Ledger:
        return cast("Ledger", await self._writer(node).submit(AmendChange(change), lazy=lazy))

    async def open(self, node: str, ledger: Ledger) -> Ledger:
        return await self._writer(node).open(ledger)

    async def close(self, node: str) -> bool:
        return await self._writer(node).close()

    def ledger(self, node: str) -> Ledger | None:
        return self._views.get(node)

    def nodes(self) -> Collection[str]:
        return self._views.keys()

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        return self._subscribers.add(changed)

    async def finish(self) -> None:
        """Stop following the watch and write all queued changes. Call it at shutdown."""
        self._unsubscribe()
        await asyncio.gather(*(writer.finish() for writer in tuple(self._writers.values())))

    def _cache(self, node: str) -> CachedLedger:
        return self._cached.setdefault(node, CachedLedger(node))

    def _writer(self, node: str) -> LedgerWriter:
        if node not in self._writers:
            self._writers[node] = LedgerWriter(self._cache(node), self._context)
        return self._writers[node]

    def _changed(self, change: ObjectChange[NodeReservation]) -> None:
        if change.new is not None:
            self._show(change.new)
        elif change.old is not None:
            self._vanish(change.old)

    def _show(self, stored: NodeReservation) -> None:
        page = self._cache(stored.metadata.name)
        page.observe(stored)
        self._refresh(page)

    def _vanish(self, last: NodeReservation) -> None:
        page = self._cache(last.metadata.name)
        page.observe_deleted(last)
        self._refresh(page)
        writer = self._writers.get(page.node)
        if page.view is None and (writer is None or not writer.busy):
            self._cached.pop(page.node)
            self._writers.pop(page.node, None)

    def _relisted(self, asked_at: float) -> None:
        for page in tuple(self._cached.values()):
            page.relisted(asked_at)
            self._refresh(page)

    def _refresh(self, page: CachedLedger) -> None:
        """Notify subscribers if the view of the ledger changed."""
        if page.versions.uncertain:
            self._writer(page.node).verify()
        before, now = self._views.get(page.node), page.view
        if now is before:
            return
        if now is None:
            del self._views[page.node]
        else:
            self._views[page.node] = now
        if now != before:
            self._subscribers.notify(page.node)
