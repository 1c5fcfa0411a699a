"""The capacity manager in the memory of the one process that places pods.

A change is decided and applied without awaiting, so claims cannot race and cost no write. The durable
records are the allocation in each Binding and the status of Reservations; after a restart the ledgers are
rebuilt from them (core/ledgers/rebuild.py). A Lease excludes a second process (migration.py).
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta

from croupier.book import fold, manager, switch
from croupier.book.fold import Amend, Answer, Release, Step
from croupier.book.listeners import Listeners
from croupier.book.manager import STRATEGY, TTL, Change, UnknownNode, missing
from croupier.core.ledgers.claim import Claim
from croupier.core.ledgers.ledger import Grant, Ledger, Refused
from croupier.core.placing.placement import Strategy
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock


class InMemoryCapacityManager:
    def __init__(
        self, *, strategy: Strategy = STRATEGY, ttl: timedelta = TTL, clock: Clock | None = None
    ) -> None:
        self._strategy = strategy
        self._ttl = ttl
        self._clock = clock or SystemClock()
        self._ledgers: dict[str, Ledger] = {}
        self._listeners = Listeners()

    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refused:
        until = self._clock.now() + self._ttl
        return await self.claim(node, manager.hold(pod, cards=cards, percent=percent, until=until))

    async def claim(self, node: str, claim: Claim, strategy: Strategy | None = None) -> Grant | Refused:
        if node not in self._ledgers:
            return missing(node)
        answer = self._apply(node, fold.take(claim, strategy or self._strategy))
        if answer is None or isinstance(answer, Exception):
            raise AssertionError(f"a claim must be granted or refused, not {answer!r}")
        return answer

    async def release(self, pod: str, node: str) -> None:
        if node in self._ledgers:
            self._apply(node, Release(pod))

    async def amend(self, node: str, change: Change, *, lazy: bool = False) -> Ledger:
        """There is no write to share, so `lazy` has no effect."""
        if node not in self._ledgers:
            raise UnknownNode(node)
        answer = self._apply(node, Amend(change))
        if isinstance(answer, Exception):
            raise answer
        return self._ledgers[node]

    async def open(self, node: str, ledger: Ledger) -> Ledger:
        if node not in self._ledgers:
            self._place(fold.writable(replace(ledger, node=node)))
        return self._ledgers[node]

    async def close(self, node: str) -> bool:
        known = self._ledgers.get(node)
        if known is None:
            return True
        if known.holders():
            return False
        del self._ledgers[node]
        self._listeners.tell(node)
        return True

    def ledger(self, node: str) -> Ledger | None:
        return self._ledgers.get(node)

    def nodes(self) -> Collection[str]:
        return self._ledgers.keys()

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        return self._listeners.add(changed)

    async def carry_over(self, api: Client) -> tuple[str, ...]:
        """Move all ledgers from the API server into memory, before any other use; returns their nodes."""
        return await switch.carry_over(api, self._place)

    async def finish(self) -> None:
        """There are never queued changes."""

    def _place(self, ledger: Ledger) -> None:
        self._ledgers[ledger.node] = ledger
        self._listeners.tell(ledger.node)

    def _apply(self, node: str, step: Step) -> Answer:
        before = self._ledgers[node]
        after, answer = fold.apply(before, step)
        if after != before:
            self._place(after)
        return answer
