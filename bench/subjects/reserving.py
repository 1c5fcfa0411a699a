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

from bench.subjects.meter import Meter, read_command, report
from croupier.api.kinds import NODE_RESERVATIONS
from croupier.api.mps import ledger_codec
from croupier.capacity.crd import CRDCapacityManager
from croupier.core.claims import claim
from croupier.core.claims.claim import CardClaim, Granted
from croupier.core.ledger import ledger
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardShares
from croupier.core.model.refusal import Refusal
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.errors import Conflict
from croupier.kube.serving import logs

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
    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refusal: ...
    async def release(self, pod: str, node: str) -> None: ...


@dataclass(slots=True)
class WriteAnswers:
    """Status codes of writes."""

    answers: Counter[int] = field(default_factory=Counter)

    def observe(self, verb: str, resource: str, code: int, seconds: float) -> None:
        if verb not in ("get", "list", "watch"):
            self.answers[code] += 1


class NaiveReserver:
    def __init__(self, api: Client) -> None:
        self._api = api

    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refusal:
        terms = HoldTerms(until=SystemClock().now() + timedelta(seconds=120))
        asked_for = CardClaim(pod, (CardShares(cards, percent),), terms)
        while True:
            version, now = await self._read(node)
            decision = claim.decide(now, asked_for, "Spread")
            if not isinstance(decision, Granted):
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
        return stored.metadata.resource_version, ledger_codec.decode(node, stored.spec)

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
    spec = msgspec.to_builtins(ledger_codec.encode(now))
    return {"metadata": {"name": now.node, **guard}, "spec": spec}


@contextlib.asynccontextmanager
async def reserver(who: str, api: Client) -> AsyncIterator[Reserver]:
    if who == "naive":
        yield NaiveReserver(api)
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
    counts = WriteAnswers()
    async with api_client.connect(config.load(kubeconfig), observe=counts.observe) as api:
        while line := await read_command():
            task = msgspec.json.decode(line, type=Task)
            async with reserver(task.who, api) as through:
                report(ready=True)
                await read_command()
                counts.answers.clear()
                meter = Meter.start()
                reserves = await work(through, task, number)
                conflicts = counts.answers[409]
                writes = counts.answers.total() - conflicts
                report(reserves=reserves, conflicts=conflicts, writes=writes, **meter.read())


async def work(through: Reserver, task: Task, number: int) -> int:
    until = time.perf_counter() + task.seconds
    done = await asyncio.gather(
        *(reserve_until(through, task, f"{number}-{caller}", until) for caller in range(task.callers))
    )
    return sum(done)


async def reserve_until(through: Reserver, task: Task, name: str, until: float) -> int:
    """Number of reservations before `until`. Each is released again."""
    chance = random.Random(name)  # noqa: S311 (not a secret)
    reserves = 0
    while time.perf_counter() < until:
        node = f"node-{chance.randrange(task.nodes)}"
        pod = f"bench/client-{name}/{reserves}"
        got = await through.reserve(pod, node, 1, PERCENT)
        if isinstance(got, Refusal):
            raise RuntimeError(f"{node} refused a share: {got}")
        reserves += time.perf_counter() < until
        await through.release(pod, node)
    return reserves


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
