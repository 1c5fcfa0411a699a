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
from croupier.book import fold, manager
from croupier.book.fold import Amend, Release
from croupier.book.listeners import Listeners
from croupier.book.manager import STRATEGY, TTL
from croupier.book.manager import Change as LedgerChange
from croupier.book.metrics import Gauge, Unmeasured
from croupier.book.page import Page
from croupier.book.writer import Desk, Rules, Writer
from croupier.core.ledgers.claim import Claim
from croupier.core.ledgers.ledger import Grant, Ledger, Refused
from croupier.core.placing.placement import Strategy
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.store import Change, Store


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
        gauge: Gauge | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._strategy = strategy
        self._ttl = ttl
        self._clock = clock or SystemClock()
        self._desk = Desk(api, self._clock, chance, gauge or Unmeasured(), rules or Rules(), self._look_at)
        self._pages: dict[str, Page] = {}
        self._writers: dict[str, Writer] = {}
        self._views: dict[str, Ledger] = {}
        self._listeners = Listeners()
        for stored in store:
            self._show(stored)
        self._unsubscribe = store.subscribe(self._changed, relisted=self._relisted)

    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refused:
        until = self._clock.now() + self._ttl
        return await self.claim(node, manager.hold(pod, cards=cards, percent=percent, until=until))

    async def claim(self, node: str, claim: Claim, strategy: Strategy | None = None) -> Grant | Refused:
        take = fold.take(claim, strategy or self._strategy)
        return cast("Grant | Refused", await self._writer(node).submit(take))

    async def release(self, pod: str, node: str) -> None:
        await self._writer(node).submit(Release(pod))

    async def amend(self, node: str, change: LedgerChange, *, lazy: bool = False) -> Ledger:
        return cast("Ledger", await self._writer(node).submit(Amend(change), lazy=lazy))

    async def open(self, node: str, ledger: Ledger) -> Ledger:
        return await self._writer(node).open(ledger)

    async def close(self, node: str) -> bool:
        return await self._writer(node).close()

    def ledger(self, node: str) -> Ledger | None:
        return self._views.get(node)

    def nodes(self) -> Collection[str]:
        return self._views.keys()

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        return self._listeners.add(changed)

    async def finish(self) -> None:
        """Stop following the watch and write all queued changes. Call it at shutdown."""
        self._unsubscribe()
        await asyncio.gather(*(writer.finish() for writer in tuple(self._writers.values())))

    def _page(self, node: str) -> Page:
        return self._pages.setdefault(node, Page(node))

    def _writer(self, node: str) -> Writer:
        if node not in self._writers:
            self._writers[node] = Writer(self._page(node), self._desk)
        return self._writers[node]

    def _changed(self, change: Change[NodeReservation]) -> None:
        if change.new is not None:
            self._show(change.new)
        elif change.old is not None:
            self._vanish(change.old)

    def _show(self, stored: NodeReservation) -> None:
        page = self._page(stored.metadata.name)
        page.show(stored)
        self._look_at(page)

    def _vanish(self, last: NodeReservation) -> None:
        page = self._page(last.metadata.name)
        page.vanish(last)
        self._look_at(page)
        writer = self._writers.get(page.node)
        if page.view is None and (writer is None or not writer.busy):
            self._pages.pop(page.node)
            self._writers.pop(page.node, None)

    def _relisted(self, asked_at: float) -> None:
        for page in tuple(self._pages.values()):
            page.relisted(asked_at)
            self._look_at(page)

    def _look_at(self, page: Page) -> None:
        """Notify subscribers if the view of the ledger changed."""
        if page.sight.doubtful:
            self._writer(page.node).make_sure()
        before, now = self._views.get(page.node), page.view
        if now is before:
            return
        if now is None:
            del self._views[page.node]
        else:
            self._views[page.node] = now
        if now != before:
            self._listeners.tell(page.node)
