"""Builders for ledgers and claims, and an environment with a CRDCapacityManager."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from croupier.api import kinds
from croupier.api.mps import NodeReservation
from croupier.book.crd import CRDCapacityManager
from croupier.book.writer import Rules
from croupier.core.ledgers.claim import Claim
from croupier.core.ledgers.ledger import Card, Ledger, Slot, Terms
from croupier.core.pods.want import Shares, Wants
from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.kube.clock import SystemClock
from croupier.kube.reflector import Reflector
from croupier.kube.store import Store

NODE = "node-1"
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
UID = "3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11"
PATIENT = Rules(linger=3600.0)
"""Lazy changes wait until the next write."""


class Noon(SystemClock):
    """`now` is always a little after noon; sleeping takes real time."""

    def now(self) -> datetime:
        return NOON.replace(microsecond=250_000)


def percent(index: int = 0, **known: Any) -> Card:
    return Card(f"{NODE}-gpu-{index}", index, **known)


def sliced(index: int = 0, slices: int = 8, **known: Any) -> Card:
    return Card(f"{NODE}-gpu-{index}", index, "TimeSlice", capacity=slices, **known)


def exclusive(index: int = 0, **known: Any) -> Card:
    return Card(f"{NODE}-gpu-{index}", index, "Exclusive", **known)


def cut(index: int = 0, **known: Any) -> Card:
    """Two 1g.10gb and one 3g.40gb."""
    slots = (
        Slot("1g.10gb-0", "1g.10gb", 0, 1),
        Slot("1g.10gb-1", "1g.10gb", 1, 1),
        Slot("3g.40gb-4", "3g.40gb", 4, 4),
    )
    return Card(f"{NODE}-gpu-{index}", index, "MIG", slots=slots, **known)


def node(*cards: Card, name: str = NODE) -> Ledger:
    """A ledger, by default with two cards that are shared by percent."""
    return Ledger(name, cards or (percent(0), percent(1)))


def claim(holder: str, *wants: Any, priority: int = 0, **terms: Any) -> Claim:
    """A claim, by default for half a card until noon."""
    request: Wants = wants or (Shares(1, 50),)
    return Claim(holder, request, Terms(**{"until": NOON, **terms}), priority)


def pod(number: int = 0) -> str:
    return f"default/pod-{number}/{UID[:-4]}{number:04x}"


@dataclass
class Desk:
    """One process with a CRDCapacityManager."""

    api: Client
    store: Store[NodeReservation]
    book: CRDCapacityManager
    verbs: list[tuple[str, int]] = field(default_factory=list)
    """The verb and status code of every answered request for NodeReservations."""

    def count(self, verb: str, code: int = 200) -> int:
        return self.verbs.count((verb, code))


@contextlib.asynccontextmanager
async def desk(
    kubeconfig: Any,
    *,
    watching: bool = True,
    after: Callable[[str, int], None] | None = None,
    before: Callable[[], None] | None = None,
    **settings: Any,
) -> AsyncIterator[Desk]:
    """`after` is called after each answer and `before` before each write; raising there loses it."""
    verbs: list[tuple[str, int]] = []

    def observe(verb: str, resource: str, code: int, seconds: float) -> None:
        if resource == kinds.NODE_RESERVATIONS.full_name:
            verbs.append((verb, code))
            if after is not None:
                after(verb, code)

    async with client.connect(config.load(kubeconfig), observe=observe) as api:
        store: Store[NodeReservation] = Store(kinds.NODE_RESERVATIONS)
        reflector = Reflector(api, store)
        running = asyncio.create_task(reflector.run()) if watching else None
        if watching:
            await reflector.synced()
        writing = api if before is None else api.fenced(before)
        book = CRDCapacityManager(writing, store, **{"clock": Noon(), **settings})
        try:
            yield Desk(api, store, book, verbs)
        finally:
            await book.finish()
            if running is not None:
                running.cancel()
                await asyncio.wait([running])
