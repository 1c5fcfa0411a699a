"""`croupier manager`: the controllers, with leader election."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from croupier.api import kinds
from croupier.capacity.manager import CapacityManagerKind
from croupier.capacity.metrics import LedgerWriteMetrics
from croupier.controllers.shared.handler_metrics import HandlerErrors
from croupier.kube.controller.leader_election import Leadership
from croupier.kube.serving.component_runner import Component
from croupier.wiring import bootstrap, inventory, ledger, limits, pools
from croupier.wiring.bootstrap import ServiceOptions
from croupier.wiring.controller_group import ControllerGroup
from croupier.wiring.ledger import LedgerControllers
from croupier.wiring.process_context import (
    InformerFactory,
    ProcessContext,
    ProcessOptions,
    new_elector,
    open_context,
    run_until_stopped,
)

MANAGER_LEASE: Final = "croupier-manager"
CONTROLLERS: Final = ("inventory", "bootstrap", "pools", "ledger", "limits")
"""Groups of controllers; each can run in its own process with its own service account."""


async def work(
    settings: ProcessOptions, chosen: Collection[str] = CONTROLLERS, starting: ServiceOptions | None = None
) -> int:
    """Run the chosen controllers. With an InMemory capacity manager the extender runs those of the ledger."""
    async with open_context(settings) as context:
        guards = []
        if "ledger" in chosen and context.settings.book == "CRD":
            guards = await ledger.exclude_in_memory_manager(context)
        working = components(context, chosen, starting or ServiceOptions())
        return await run_until_stopped(
            context,
            [*guards, *working],
            name="croupier manager",
            details={"controllers": ", ".join(_running(chosen, context.settings.book))},
        )


def components(context: ProcessContext, chosen: Collection[str], starting: ServiceOptions) -> list[Component]:
    caches = InformerFactory(context.api, context.metrics)
    group = ControllerGroup(context, caches, HandlerErrors(context.metrics.registry))
    groups: Mapping[str, Callable[[], list[Component]]] = {
        "inventory": lambda: inventory.components(group),
        "bootstrap": lambda: bootstrap.components(group, starting),
        "pools": lambda: pools.components(group),
        "ledger": lambda: _ledger(context, caches),
        "limits": lambda: limits.components(group),
    }
    working = [part for name in CONTROLLERS if name in chosen for part in groups[name]()]
    context.checks.ready["caches"] = caches.not_synced
    return [*caches.components(), *working]


def _running(chosen: Collection[str], book: CapacityManagerKind) -> list[str]:
    elsewhere = {"ledger": "ledger (run by the extender)"} if book == "InMemory" else {}
    return [elsewhere.get(name, name) for name in CONTROLLERS if name in chosen]


def _ledger(context: ProcessContext, caches: InformerFactory) -> list[Component]:
    if context.settings.book == "InMemory":
        return []  # the extender runs them
    controllers = LedgerControllers(context, caches, MANAGER_LEASE)
    ledgers = caches.follow(kinds.NODE_RESERVATIONS)
    metrics = LedgerWriteMetrics(context.metrics.registry)
    elector = new_elector(context, MANAGER_LEASE)

    async def lead(stop: asyncio.Event) -> None:
        async def work(leadership: Leadership) -> None:
            manager = ledger.crd_manager(context, ledgers, metrics, context.api.fenced(leadership.require))
            try:
                await context.live_settings.run_with(
                    lambda end, _: controllers.run(manager, leadership, end, records=ledgers), stop
                )
            finally:
                await ledger.flush(manager)

        await elector.run(work, stop)

    return [controllers.events(), Component("controllers", lead)]
