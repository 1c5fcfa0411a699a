"""`croupier extender`: the scheduler extender."""

import asyncio
from collections.abc import Callable
from typing import Final

from croupier.api import kinds
from croupier.api.gpu import GPUPool
from croupier.api.settings import Configuration
from croupier.book import switch
from croupier.book.memory import InMemoryCapacityManager
from croupier.book.metrics import LedgerMetrics
from croupier.book.writer import Rules as WriterRules
from croupier.controllers.watched import Watched
from croupier.core.placing.placement import Strategy
from croupier.extender.metrics import ExtenderMetrics
from croupier.extender.server import Extender, Surroundings
from croupier.extender.service import Settings as Placing
from croupier.kube.elector import Leadership
from croupier.kube.run import Part
from croupier.kube.serving import Listen
from croupier.wiring import ledger
from croupier.wiring.ledger import LedgerKeepers
from croupier.wiring.surface import Caches, Settings, Surface, election, surfaced, until_stopped

SHARED: Final = WriterRules(linger=40.0, gather=0.1)
"""Batching of an extender's writes: a bind waits briefly for others, a promotion for the node's next bind."""


async def work(settings: Settings, listen: Listen) -> int:
    """Serve kube-scheduler; with the InMemory capacity manager also run the ledger's controllers."""
    async with surfaced(settings) as surface:
        if surface.settings.book == "InMemory":
            return await _place_from_memory(surface, listen)
        await switch.guard(surface.api, settings.namespace)
        return await _place_from_ledgers(surface, listen)


async def _place_from_ledgers(surface: Surface, listen: Listen) -> int:
    caches = Caches(surface.api, surface.metrics)
    pools, ledgers = caches.follow(kinds.GPU_POOLS), caches.follow(kinds.NODE_RESERVATIONS)
    figures = LedgerMetrics(surface.metrics.registry)
    manager = ledger.shared(surface, ledgers, figures, surface.api, rules=SHARED)
    around = Surroundings(
        ready=lambda: caches.behind() is None,
        of_pool=_strategy_of(pools),
        gauge=ExtenderMetrics(surface.metrics.registry),
    )

    async def place(ending: asyncio.Event, _: Configuration) -> None:
        options = _placing(surface.settings)
        await Extender(manager, surface.api, settings=options, listen=listen, around=around).run(ending)

    async def serve(stop: asyncio.Event) -> None:
        try:
            await surface.orders.obeyed(place, stop)
        finally:
            await ledger.finish(manager)

    surface.checks.ready["caches"] = caches.behind
    return await until_stopped(surface, [*caches.parts(), Part("extender", serve), ledger.guard(surface)])


async def _place_from_memory(surface: Surface, listen: Listen) -> int:
    caches = Caches(surface.api, surface.metrics)
    controllers = LedgerKeepers(surface, caches)
    elector = election(surface, switch.LEASE)
    settings, metrics = surface.settings, ExtenderMetrics(surface.metrics.registry)
    around = Surroundings(of_pool=_strategy_of(controllers.pools), gauge=metrics)
    complete = asyncio.Event()

    async def lead(stop: asyncio.Event) -> None:
        async def work(leadership: Leadership) -> None:
            async def place(ending: asyncio.Event, _: Configuration) -> None:
                manager = InMemoryCapacityManager(strategy=settings.strategy, ttl=settings.ttl)
                api = surface.api.fenced(leadership.require)
                await manager.carry_over(api)
                await controllers.open(manager)
                serving = Extender(manager, api, settings=_placing(settings), listen=listen, around=around)
                complete.set()
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(controllers.run(manager, leadership, ending))
                        group.create_task(serving.run(ending))
                finally:
                    complete.clear()

            await surface.orders.obeyed(place, stop)

        await elector.run(work, stop)

    waiting = f"waiting for the Lease {settings.namespace}/{switch.LEASE}, or rebuilding the ledgers"
    surface.checks.ready["ledgers"] = lambda: None if complete.is_set() or surface.orders.off else waiting
    return await until_stopped(surface, [*caches.parts(), controllers.events(), Part("extender", lead)])


def _strategy_of(pools: Watched[GPUPool]) -> Callable[[str], Strategy | None]:
    def of_pool(name: str) -> Strategy | None:
        pool = pools.store.named(name)
        return pool.spec.scheduling.strategy if pool is not None else None

    return of_pool


def _placing(settings: Settings) -> Placing:
    return Placing(strategy=settings.strategy, ttl=settings.ttl)
