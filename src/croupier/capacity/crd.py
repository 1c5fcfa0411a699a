"""The capacity manager that stores ledgers in the API server: one NodeReservation per node, many writers.

Compare-and-swap on each object prevents overcommitting; processes need no other coordination.
Reads cost no request: the ledgers come from the watch and are never older than our own writes.
"""

import asyncio
import random
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import cast

from prometheus_client import CollectorRegistry

from croupier.api.mps import NodeReservation
from croupier.capacity import batching, manager
from croupier.capacity.batching import AmendChange, ReleaseChange
from croupier.capacity.cached_ledger import CachedLedger
from croupier.capacity.manager import STRATEGY, TTL, LedgerFunction
from croupier.capacity.metrics import LedgerWriteMetrics
from croupier.capacity.subscribers import Subscribers
from croupier.capacity.writer import LedgerWriter, LedgerWriterOptions, WriterContext
from croupier.core.claims.claim import CardClaim
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import Grant
from croupier.core.model.refusal import Refusal
from croupier.core.placement.placement import Strategy
from croupier.kube.cache.store import ObjectChange, Store
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock


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
        metrics: LedgerWriteMetrics | None = None,
        rules: LedgerWriterOptions | None = None,
    ) -> None:
        self._strategy = strategy
        self._ttl = ttl
        self._clock = clock or api.clock
        self._context = WriterContext(
            api,
            self._clock,
            chance,
            metrics or LedgerWriteMetrics(CollectorRegistry()),
            rules or LedgerWriterOptions(),
        )
        self._cached: dict[str, CachedLedger] = {}
        self._writers: dict[str, LedgerWriter] = {}
        self._views: dict[str, Ledger] = {}
        self._subscribers = Subscribers()
        for stored in store:
            self._cache(stored.metadata.name).observe(stored)
        self._unsubscribe = store.subscribe(self._watched, relisted=self._relisted)

    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refusal:
        until = self._clock.now() + self._ttl
        return await self.claim(node, manager.hold_claim(pod, cards=cards, percent=percent, until=until))

    async def claim(self, node: str, claim: CardClaim, strategy: Strategy | None = None) -> Grant | Refusal:
        take = batching.claim_change(claim, strategy or self._strategy)
        return cast("Grant | Refusal", await self._writer(node).submit(take))

    async def release(self, pod: str, node: str) -> None:
        await self._writer(node).submit(ReleaseChange(pod))

    async def amend(self, node: str, change: LedgerFunction, *, lazy: bool = False) -> Ledger:
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
        if node not in self._cached:
            self._cached[node] = CachedLedger(node, self._publish)
        return self._cached[node]

    def _writer(self, node: str) -> LedgerWriter:
        if node not in self._writers:
            self._writers[node] = LedgerWriter(self._cache(node), self._context)
        return self._writers[node]

    def _watched(self, change: ObjectChange[NodeReservation]) -> None:
        cached = self._cache(change.key.name)
        if change.new is not None:
            cached.observe(change.new)
        elif change.old is not None:
            cached.observe_deleted(change.old)
        self._verify(cached)
        if change.new is None:
            self._drop_unused(cached)

    def _relisted(self, asked_at: float) -> None:
        for cached in tuple(self._cached.values()):
            cached.relisted(asked_at)
            self._verify(cached)

    def _verify(self, cached: CachedLedger) -> None:
        if cached.versions.uncertain:
            self._writer(cached.node).verify()

    def _drop_unused(self, cached: CachedLedger) -> None:
        writer = self._writers.get(cached.node)
        if cached.view is None and (writer is None or not writer.busy):
            self._cached.pop(cached.node)
            self._writers.pop(cached.node, None)

    def _publish(self, cached: CachedLedger) -> None:
        """Notify subscribers if the view of the ledger changed."""
        node, before, now = cached.node, self._views.get(cached.node), cached.view
        if now is before:
            return
        if now is None:
            del self._views[node]
        else:
            self._views[node] = now
        if now != before:
            self._subscribers.notify(node)
