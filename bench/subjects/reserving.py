"""One client of the ledger, or several in one process: reserve and release a share of a card in a loop.

Two variants with the same decision: CRDCapacityManager, and a naive one that reads the NodeReservation,
decides, writes it back and retries on a conflict.
"""

import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from bench.subjects.meter import Meter, asked, say
from croupier.api.kinds import NODE_RESERVATIONS
from croupier.api.mps import translate
from croupier.book.crd import CRDCapacityManager
from croupier.core.ledgers import claim, ledger
from croupier.core.ledgers.claim import Claim, Taken
from croupier.core.ledgers.ledger import Grant, Ledger, Refused, Terms
from croupier.core.pods.want import Shares
from croupier.kube import client, config, logs
from croupier.kube.client import Client
from croupier.kube.clock import SystemClock
from croupier.kube.errors import Conflict
from croupier.kube.reflector import Reflector
from croupier.kube.store import Store

PERCENT = 1
PAUSE = 0.01
"""Seconds a naive client waits after a conflict, as client-go's RetryOnConflict does."""


class Task(msgspec.Struct, frozen=True):
    """Number of callers in this process and the duration; each call uses a random node."""

    who: str
    nodes: int
    callers: int
    seconds: float


class Reserver(Protocol):
    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refused: ...
    async def release(self, pod: str, node: str) -> None: ...


@dataclass(slots=True)
class Counts:
    """Status codes of writes."""

    answers: Counter[int] = field(default_factory=Counter)

    def observe(self, verb: str, resource: str, code: int, seconds: float) -> None:
        if verb not in ("get", "list", "watch"):
            self.answers[code] += 1


class Naive:
    def __init__(self, api: Client) -> None:
        self._api = api

    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refused:
        terms = Terms(until=SystemClock().now() + timedelta(seconds=120))
        asked_for = Claim(pod, (Shares(cards, percent),), terms)
        while True:
            version, now = await self._read(node)
            decision = claim.decide(now, asked_for, "Spread")
            if not isinstance(decision, Taken):
                return decision
            if await self._wrote(decision.ledger, version):
                return decision.grant

    async def release(self, pod: str, node: str) -> None:
        while True:
            version, now = await self._read(node)
            if await self._wrote(ledger.release(now, pod), version):
                return

    async def _read(self, node: str) -> tuple[str, Ledger]:
        stored = await self._api.get(NODE_RESERVATIONS, node)
        return stored.metadata.resource_version, translate.read(node, stored.spec)

    async def _wrote(self, changed: Ledger, version: str) -> bool:
        try:
            await self._api.update(NODE_RESERVATIONS, body(changed, version))
        except Conflict:
            await asyncio.sleep(PAUSE)
            return False
        return True


def body(now: Ledger, version: str = "") -> dict[str, object]:
    """The NodeReservation of a ledger."""
    guard = {"resourceVersion": version} if version else {}
    spec = msgspec.to_builtins(translate.write(now))
    return {"metadata": {"name": now.node, **guard}, "spec": spec}


@contextlib.asynccontextmanager
async def reserver(who: str, api: Client) -> AsyncIterator[Reserver]:
    if who == "naive":
        yield Naive(api)
        return
    store = Store(NODE_RESERVATIONS)
    reflector = Reflector(api, store)
    following = asyncio.create_task(reflector.run())
    try:
        await reflector.synced()
        yield CRDCapacityManager(api, store)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def main(kubeconfig: Path, number: int) -> None:
    logs.setup(level="warning")
    counts = Counts()
    async with client.connect(config.load(kubeconfig), observe=counts.observe) as api:
        while line := await asked():
            task = msgspec.json.decode(line, type=Task)
            async with reserver(task.who, api) as through:
                say(ready=True)
                await asked()
                counts.answers.clear()
                meter = Meter.start()
                reserves = await work(through, task, number)
                conflicts = counts.answers[409]
                writes = counts.answers.total() - conflicts
                say(reserves=reserves, conflicts=conflicts, writes=writes, **meter.read())


async def work(through: Reserver, task: Task, number: int) -> int:
    until = time.perf_counter() + task.seconds
    done = await asyncio.gather(
        *(calling(through, task, f"{number}-{caller}", until) for caller in range(task.callers))
    )
    return sum(done)


async def calling(through: Reserver, task: Task, name: str, until: float) -> int:
    """Number of reservations before `until`. Each is released again."""
    chance = random.Random(name)  # noqa: S311 (not a secret)
    reserves = 0
    while time.perf_counter() < until:
        node = f"node-{chance.randrange(task.nodes)}"
        pod = f"bench/client-{name}/{reserves}"
        got = await through.reserve(pod, node, 1, PERCENT)
        if isinstance(got, Refused):
            raise RuntimeError(f"{node} refused a share: {got}")
        reserves += time.perf_counter() < until
        await through.release(pod, node)
    return reserves


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
