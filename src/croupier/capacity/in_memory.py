"""The capacity manager in the memory of the one process that places pods.

A change is decided and applied without awaiting, so claims cannot race and cost no write. The durable
records are the allocation in each Binding and the status of Reservations; after a restart the ledgers are
rebuilt from them (core/claims/rebuild.py). A Lease excludes a second process (migration.py).
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta

from croupier.capacity import batching, manager, migration
from croupier.capacity.batching import AmendChange, BatchChange, ChangeResult, ReleaseChange
from croupier.capacity.manager import STRATEGY, TTL, LedgerFunction, UnknownNode, unknown_node
from croupier.capacity.subscribers import Subscribers
from croupier.core.claims.claim import CardClaim
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import Grant
from croupier.core.model.refusal import Refusal
from croupier.core.placement.placement import Strategy
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock


class InMemoryCapacityManager:
    def __init__(
        self, *, strategy: Strategy = STRATEGY, ttl: timedelta = TTL, clock: Clock | None = None
    ) -> None:
        self._strategy = strategy
        self._ttl = ttl
        self._clock = clock or SystemClock()
        self._ledgers: dict[str, Ledger] = {}
        self._subscribers = Subscribers()

    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refusal:
        until = self._clock.now() + self._ttl
        return await self.claim(node, manager.hold_claim(pod, cards=cards, percent=percent, until=until))

    async def claim(self, node: str, claim: CardClaim, strategy: Strategy | None = None) -> Grant | Refusal:
        if node not in self._ledgers:
            return unknown_node(node)
        answer = self._apply(node, batching.claim_change(claim, strategy or self._strategy))
        if answer is None or isinstance(answer, Exception):
            raise AssertionError(f"a claim must be granted or refused, not {answer!r}")
        return answer

    async def release(self, pod: str, node: str) -> None:
        if node in self._ledgers:
            self._apply(node, ReleaseChange(pod))

    async def amend(self, node: str, change: LedgerFunction, *, lazy: bool = False) -> Ledger:
        """There is no write to share, so `lazy` has no effect."""
        if node not in self._ledgers:
            raise UnknownNode(node)
        answer = self._apply(node, AmendChange(change))
        if isinstance(answer, Exception):
            raise answer
        return self._ledgers[node]

    async def open(self, node: str, ledger: Ledger) -> Ledger:
        if node not in self._ledgers:
            self._place(batching.with_whole_seconds(replace(ledger, node=node)))
        return self._ledgers[node]

    async def close(self, node: str) -> bool:
        known = self._ledgers.get(node)
        if known is None:
            return True
        if known.holders():
            return False
        del self._ledgers[node]
        self._subscribers.notify(node)
        return True

    def ledger(self, node: str) -> Ledger | None:
        return self._ledgers.get(node)

    def nodes(self) -> Collection[str]:
        return self._ledgers.keys()

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        return self._subscribers.add(changed)

    async def carry_over(self, api: Client) -> tuple[str, ...]:
        """Move all ledgers from the API server into memory, before any other use; returns their nodes."""
        return await migration.move_to_memory(api, self._place)

    async def finish(self) -> None:
        """There are never queued changes."""

    def _place(self, ledger: Ledger) -> None:
        self._ledgers[ledger.node] = ledger
        self._subscribers.notify(ledger.node)

    def _apply(self, node: str, step: BatchChange) -> ChangeResult:
        before = self._ledgers[node]
        after, answer = batching.apply(before, step)
        if after != before:
            self._place(after)
        return answer
