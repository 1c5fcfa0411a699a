"""`croupier extender`: the scheduler extender."""

import asyncio
from collections.abc import Callable
from typing import Final

from croupier.api import kinds
from croupier.api.gpu import GPUPool
from croupier.api.settings import Configuration
from croupier.capacity import exclusion
from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.capacity.metrics import LedgerWriteMetrics
from croupier.capacity.writer import LedgerWriterOptions as WriterRules
from croupier.core.placement.placement import Strategy
from croupier.extender.metrics import ExtenderMetrics
from croupier.extender.server import Extender, ExtenderDependencies
from croupier.extender.service import ExtenderOptions as Placing
from croupier.kube.cache.informer import Informer
from croupier.kube.controller import events
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.leader_election import Leadership
from croupier.kube.serving.component_runner import Component
from croupier.kube.serving.http_server import ListenOptions
from croupier.wiring import ledger
from croupier.wiring.ledger import LedgerControllers
from croupier.wiring.process_context import (
    InformerFactory,
    ProcessContext,
    ProcessOptions,
    new_elector,
    open_context,
    run_until_stopped,
)

PROCESS: Final = "croupier extender"
WRITER_OPTIONS: Final = WriterRules(flush_after=40.0, batch_window=0.1)
"""Batching of an extender's writes: a bind waits briefly for others, a promotion for the node's next bind."""


async def work(settings: ProcessOptions, listen: ListenOptions) -> int:
    """Serve kube-scheduler; with the InMemory capacity manager also run the ledger's controllers."""
    async with open_context(settings) as context:
        if context.settings.book == "InMemory":
            return await _place_from_memory(context, listen)
        guards = await ledger.exclude_in_memory_manager(context)
        return await _place_from_ledgers(context, listen, guards)


async def _place_from_ledgers(context: ProcessContext, listen: ListenOptions, guards: list[Component]) -> int:
    caches = InformerFactory(context.api, context.metrics)
    pools, ledgers = caches.follow(kinds.GPU_POOLS), caches.follow(kinds.NODE_RESERVATIONS)
    metrics = LedgerWriteMetrics(context.metrics.registry)
    manager = ledger.crd_manager(context, ledgers, metrics, context.api, rules=WRITER_OPTIONS)
    recorder = _allocation_events(context)
    around = ExtenderDependencies(
        record=recorder.record,
        ready=lambda: caches.not_synced() is None,
        of_pool=_strategy_of(pools),
        clock=context.api.clock,
        metrics=ExtenderMetrics(context.metrics.registry),
    )

    async def place(ending: asyncio.Event, _: Configuration) -> None:
        options = _extender_options(context.settings)
        await Extender(manager, context.api, settings=options, listen=listen, dependencies=around).run(ending)

    async def serve(stop: asyncio.Event) -> None:
        try:
            await context.live_settings.run_with(place, stop)
        finally:
            await ledger.flush(manager)

    context.checks.ready["caches"] = caches.not_synced
    return await run_until_stopped(
        context,
        [*guards, *caches.components(), Component("events", recorder.run), Component("extender", serve)],
        name=PROCESS,
    )


async def _place_from_memory(context: ProcessContext, listen: ListenOptions) -> int:
    caches = InformerFactory(context.api, context.metrics)
    lease = exclusion.LEASE_OF["InMemory"]
    controllers = LedgerControllers(context, caches, lease)
    elector = new_elector(context, lease)
    settings, metrics = context.settings, ExtenderMetrics(context.metrics.registry)
    recorder = _allocation_events(context)
    around = ExtenderDependencies(
        record=recorder.record,
        of_pool=_strategy_of(controllers.pools),
        clock=context.api.clock,
        metrics=metrics,
    )
    complete = asyncio.Event()
    expired = await exclusion.ensure_inactive(context.api, settings.namespace, "CRD")

    async def lead(stop: asyncio.Event) -> None:
        async def work(leadership: Leadership) -> None:
            await exclusion.exclude_crd_managers(context.api, settings.namespace, expired)

            async def place(ending: asyncio.Event, _: Configuration) -> None:
                api = context.api.fenced(leadership.require)
                manager = InMemoryCapacityManager(
                    strategy=settings.strategy, ttl=settings.ttl, clock=api.clock
                )
                await manager.carry_over(api)
                await controllers.open(manager)
                serving = Extender(
                    manager, api, settings=_extender_options(settings), listen=listen, dependencies=around
                )
                complete.set()
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(controllers.run(manager, leadership, ending))
                        group.create_task(serving.run(ending))
                finally:
                    complete.clear()

            await context.live_settings.run_with(place, stop)

        await elector.run(work, stop)

    waiting = f"waiting for the Lease {settings.namespace}/{lease}, or rebuilding the ledgers"
    context.checks.ready["ledgers"] = lambda: (
        None if complete.is_set() or context.live_settings.off else waiting
    )
    return await run_until_stopped(
        context,
        [
            *caches.components(),
            controllers.events(),
            Component("events of binds", recorder.run),
            Component("extender", lead),
        ],
        name=PROCESS,
    )


def _allocation_events(context: ProcessContext) -> EventRecorder:
    """Records one Event per bound pod, also if a bind is repeated after a restart."""
    metrics = context.metrics.events
    return EventRecorder(context.api, ledger.REPORTER, metrics=metrics, naming=events.stable_name)


def _strategy_of(pools: Informer[GPUPool]) -> Callable[[str], Strategy | None]:
    def of_pool(name: str) -> Strategy | None:
        pool = pools.store.named(name)
        return pool.spec.scheduling.strategy if pool is not None else None

    return of_pool


def _extender_options(settings: ProcessOptions) -> Placing:
    return Placing(strategy=settings.strategy, ttl=settings.ttl)
