"""Our processes beside the stock scheduler: the extender, the controllers, or both in one.

With the book in the API server they are two processes, as in a cluster; with the book in memory it
is one, because whoever places pods must keep the book.
"""

import asyncio
import contextlib
import cProfile
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from bench.subjects.meter import asked, say
from croupier.api import kinds
from croupier.book.crd import CRDCapacityManager
from croupier.book.manager import CapacityManager
from croupier.book.memory import InMemoryCapacityManager
from croupier.controllers.capacity import CapacityController
from croupier.controllers.holders import HolderController
from croupier.controllers.sight import Sight, Sources
from croupier.controllers.watched import Watched
from croupier.core.placement import Strategy
from croupier.extender.server import Extender
from croupier.extender.service import Settings
from croupier.kube import client, config, logs
from croupier.kube.client import Client
from croupier.kube.events import Recorder
from croupier.kube.reflector import Reflector
from croupier.kube.resource import Resource
from croupier.kube.store import Store

T = TypeVar("T")

PROFILE = "BENCH_PROFILE"
"""Names a folder: every process leaves a profile of itself there."""


@dataclass(frozen=True, slots=True)
class Role:
    extends: bool
    controls: bool
    book: str
    strategy: Strategy


class House:
    """Everything one process runs, as tasks that end with it."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.tasks: list[asyncio.Task[Any]] = []

    async def watched(self, resource: Resource[T]) -> Watched[T]:
        store: Store[T] = Store(resource)
        cache = Reflector(self.api, store)
        self.tasks.append(asyncio.create_task(cache.run()))
        await cache.synced()
        return Watched(store, cache)

    async def book(self, role: Role) -> CapacityManager:
        if role.book == "InMemory":
            return InMemoryCapacityManager(strategy=role.strategy)
        ledgers = await self.watched(kinds.NODE_RESERVATIONS)
        return CRDCapacityManager(self.api, ledgers.store, strategy=role.strategy)

    async def control(self, book: CapacityManager) -> None:
        sources = Sources(
            nodes=await self.watched(kinds.NODES),
            devices=await self.watched(kinds.GPU_DEVICES),
            pools=await self.watched(kinds.GPU_POOLS),
            pods=await self.watched(kinds.PODS),
            reservations=await self.watched(kinds.RESERVATIONS),
        )
        sight, recorder = Sight(sources), Recorder(self.api, "gpu-bench")
        await CapacityController(sight, book).prime()
        holders = HolderController(sight, self.api, book=book, recorder=recorder)
        self.tasks.append(asyncio.create_task(holders.run(asyncio.Event())))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def main(kubeconfig: Path, role: Role) -> None:
    logs.setup(level="error")
    async with client.connect(config.load(kubeconfig)) as api:
        house = House(api)
        try:
            book = await house.book(role)
            if role.controls:
                await house.control(book)
            async with serving(role, book, api) as url:
                say(url=url, pid=os.getpid())
                while await asked():
                    say(holders=holders(book))
        finally:
            await house.close()


@contextlib.asynccontextmanager
async def serving(role: Role, book: CapacityManager, api: Client) -> AsyncIterator[str]:
    if not role.extends:
        yield ""
        return
    async with Extender(book, api, settings=Settings(strategy=role.strategy)).serving() as listening:
        yield listening.url


def holders(book: CapacityManager) -> int:
    ledgers = (book.ledger(node) for node in book.nodes())
    return sum(len(ledger.holders()) for ledger in ledgers if ledger is not None)


def profiled(kubeconfig: Path, role: Role) -> None:
    """Where the time of this process goes, for whoever asks by the environment."""
    folder = os.environ.get(PROFILE)
    if not folder:
        asyncio.run(main(kubeconfig, role))
        return
    profile = cProfile.Profile()
    profile.runcall(asyncio.run, main(kubeconfig, role))
    parts = [name for name, on in (("extender", role.extends), ("manager", role.controls)) if on]
    profile.dump_stats(Path(folder) / f"{role.book}-{'-'.join(parts)}-{os.getpid()}.prof")


if __name__ == "__main__":
    _, place, roles, kept, way = sys.argv
    profiled(Path(place), Role("e" in roles, "c" in roles, kept, cast("Strategy", way)))
