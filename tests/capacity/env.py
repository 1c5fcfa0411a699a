"""Builders for ledgers and claims, and an environment with a CRDCapacityManager."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from croupier.api import kinds
from croupier.api.mps import NodeReservation
from croupier.capacity.crd import CRDCapacityManager
from croupier.capacity.writer import LedgerWriterOptions
from croupier.core.claims.claim import CardClaim
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import LedgerCard, MigSlot
from croupier.core.model.card_request import CardRequest, CardShares
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import SystemClock

NODE = "node-1"
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
UID = "3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11"
NO_FLUSH = LedgerWriterOptions(flush_after=3600.0)
"""Lazy changes wait until the next write."""


class FixedClock(SystemClock):
    """`now` is always a little after noon; sleeping takes real time."""

    def now(self) -> datetime:
        return NOON.replace(microsecond=250_000)


def percent(index: int = 0, **known: Any) -> LedgerCard:
    return LedgerCard(f"{NODE}-gpu-{index}", index, **known)


def time_sliced(index: int = 0, slices: int = 8, **known: Any) -> LedgerCard:
    return LedgerCard(f"{NODE}-gpu-{index}", index, "TimeSlice", capacity=slices, **known)


def exclusive(index: int = 0, **known: Any) -> LedgerCard:
    return LedgerCard(f"{NODE}-gpu-{index}", index, "Exclusive", **known)


def mig(index: int = 0, **known: Any) -> LedgerCard:
    """Two 1g.10gb and one 3g.40gb."""
    slots = (
        MigSlot("1g.10gb-0", "1g.10gb", 0, 1),
        MigSlot("1g.10gb-1", "1g.10gb", 1, 1),
        MigSlot("3g.40gb-4", "3g.40gb", 4, 4),
    )
    return LedgerCard(f"{NODE}-gpu-{index}", index, "MIG", slots=slots, **known)


def node(*cards: LedgerCard, name: str = NODE) -> Ledger:
    """A ledger, by default with two cards that are shared by percent."""
    return Ledger(name, cards or (percent(0), percent(1)))


def claim(holder: str, *wants: Any, priority: int = 0, **terms: Any) -> CardClaim:
    """A claim, by default for half a card until noon."""
    request: CardRequest = wants or (CardShares(1, 50),)
    return CardClaim(holder, request, HoldTerms(**{"until": NOON, **terms}), priority)


def pod(number: int = 0) -> str:
    return f"default/pod-{number}/{UID[:-4]}{number:04x}"


@dataclass
class CapacityEnv:
    """One process with a CRDCapacityManager."""

    api: Client
    store: Store[NodeReservation]
    manager: CRDCapacityManager
    verbs: list[tuple[str, int]] = field(default_factory=list)
    """The verb and status code of every answered request for NodeReservations."""

    def count(self, verb: str, code: int = 200) -> int:
        return self.verbs.count((verb, code))


@contextlib.asynccontextmanager
async def capacity_env(
    kubeconfig: Any,
    *,
    watching: bool = True,
    after: Callable[[str, int], None] | None = None,
    before: Callable[[], None] | None = None,
    **settings: Any,
) -> AsyncIterator[CapacityEnv]:
    """`after` is called after each answer and `before` before each write; raising there loses it."""
    verbs: list[tuple[str, int]] = []

    def observe(verb: str, resource: str, code: int, seconds: float) -> None:
        if resource == kinds.NODE_RESERVATIONS.full_name:
            verbs.append((verb, code))
            if after is not None:
                after(verb, code)

    async with api_client.connect(config.load(kubeconfig), observe=observe) as api:
        store: Store[NodeReservation] = Store(kinds.NODE_RESERVATIONS)
        reflector = Reflector(api, store)
        running = asyncio.create_task(reflector.run()) if watching else None
        if watching:
            await reflector.synced()
        writing = api if before is None else api.fenced(before)
        book = CRDCapacityManager(writing, store, **{"clock": FixedClock(), **settings})
        try:
            yield CapacityEnv(api, store, book, verbs)
        finally:
            await book.finish()
            if running is not None:
                running.cancel()
                await asyncio.wait([running])
