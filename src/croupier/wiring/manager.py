"""`croupier manager`: the controllers, with leader election.

The chart runs each group of controllers in a process of its own, which imports only that group: it starts
faster and needs less memory.
"""

from collections.abc import Collection
from typing import Final

from croupier.capacity.manager import CapacityManagerKind
from croupier.controllers.shared.handler_metrics import HandlerErrors
from croupier.kube.serving.component_runner import Component
from croupier.wiring.controller_group import ControllerGroup
from croupier.wiring.process_context import (
    InformerFactory,
    ProcessContext,
    ProcessOptions,
    open_context,
    run_until_stopped,
)
from croupier.wiring.service_options import ServiceOptions

CONTROLLERS: Final = ("inventory", "bootstrap", "pools", "ledger", "limits")
"""Groups of controllers; each can run in its own process with its own service account."""


async def work(
    settings: ProcessOptions, chosen: Collection[str] = CONTROLLERS, starting: ServiceOptions | None = None
) -> int:
    """Run the chosen controllers. With an InMemory capacity manager the extender runs those of the ledger."""
    async with open_context(settings) as context:
        guards = []
        if "ledger" in chosen and context.settings.book == "CRD":
            from croupier.wiring import ledger

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
    working = [part for name in CONTROLLERS if name in chosen for part in _group(name, group, starting)]
    context.checks.ready["caches"] = caches.not_synced
    return [*caches.components(), *working]


def _group(name: str, group: ControllerGroup, starting: ServiceOptions) -> list[Component]:
    match name:
        case "inventory":
            from croupier.wiring import inventory

            return inventory.components(group)
        case "bootstrap":
            from croupier.wiring import bootstrap

            return bootstrap.components(group, starting)
        case "pools":
            from croupier.wiring import pools

            return pools.components(group)
        case "limits":
            from croupier.wiring import limits

            return limits.components(group)
    if group.context.settings.book == "InMemory":
        return []  # the extender runs them
    from croupier.wiring import elected_ledger

    return elected_ledger.components(group.context, group.caches)


def _running(chosen: Collection[str], book: CapacityManagerKind) -> list[str]:
    elsewhere = {"ledger": "ledger (run by the extender)"} if book == "InMemory" else {}
    return [elsewhere.get(name, name) for name in CONTROLLERS if name in chosen]
