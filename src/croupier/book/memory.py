"""The book in the memory of the one process that places pods.

A change is decided and done between two turns of the event loop, so claims cannot cross each other
and cost no write. What makes it durable is outside: the allocation that travels with each Binding,
and the status of Reservations; after a restart the ledgers are opened again from those
(`core.rebuild`). A Lease keeps a second process out (`switch.py`).
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta

from croupier.api.mps import translate
from croupier.book import fold
from croupier.book.fold import Amend, Answer, Release, Step, Take
from croupier.book.listeners import Listeners
from croupier.book.manager import STRATEGY, TTL, Change, UnknownNode, missing
from croupier.core.claim import Claim
from croupier.core.ledger import Grant, Ledger, Refused, Terms
from croupier.core.placement import Strategy
from croupier.core.want import Shares
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
        terms = Terms(until=self._clock.now() + self._ttl)
        return await self.claim(node, Claim(pod, (Shares(cards, percent),), terms))

    async def claim(self, node: str, claim: Claim, strategy: Strategy | None = None) -> Grant | Refused:
        if node not in self._ledgers:
            return missing(node)
        terms = replace(claim.terms, until=translate.whole(claim.terms.until))
        answer = self._apply(node, Take(replace(claim, terms=terms), strategy or self._strategy))
        if answer is None or isinstance(answer, Exception):
            raise AssertionError(f"a claim is granted or refused, not {answer!r}")
        return answer

    async def release(self, pod: str, node: str) -> None:
        if node in self._ledgers:
            self._apply(node, Release(pod))

    async def amend(self, node: str, change: Change, *, lazy: bool = False) -> Ledger:
        """There is no write to share, so a lazy one is done like any other."""
        if node not in self._ledgers:
            raise UnknownNode(node)
        answer = self._apply(node, Amend(change))
        if isinstance(answer, Exception):
            raise answer
        return self._ledgers[node]

    async def open(self, node: str, ledger: Ledger) -> Ledger:
        if node not in self._ledgers:
            self._ledgers[node] = ledger
            self._listeners.tell(node)
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

    def _apply(self, node: str, step: Step) -> Answer:
        before = self._ledgers[node]
        after, answer = fold.apply(before, step)
        if after is not before and after != before:
            self._ledgers[node] = after
            self._listeners.tell(node)
        return answer
