"""`croupier manager`: the controllers, with leader election."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog

from croupier.api import kinds
from croupier.book import switch
from croupier.book.metrics import LedgerMetrics
from croupier.controllers.handler_metrics import HandlerErrors
from croupier.kube.elector import Leadership
from croupier.kube.run import Part
from croupier.wiring import bootstrap, inventory, ledger, pools
from croupier.wiring.bootstrap import Starting
from croupier.wiring.ledger import LedgerKeepers
from croupier.wiring.limits import limits
from croupier.wiring.office import Office
from croupier.wiring.surface import Caches, Settings, Surface, election, surfaced, until_stopped

MANAGER_LEASE: Final = "croupier-manager"
CONTROLLERS: Final = ("inventory", "bootstrap", "pools", "ledger", "limits")
"""Groups of controllers; each can run in its own process with its own service account."""

log = structlog.get_logger(__name__)


async def work(
    settings: Settings, chosen: Collection[str] = CONTROLLERS, starting: Starting | None = None
) -> int:
    """Run the chosen controllers. With an InMemory capacity manager the extender runs those of the ledger."""
    async with surfaced(settings) as surface:
        if "ledger" in chosen and surface.settings.book == "CRD":
            await switch.guard(surface.api, settings.namespace)
        return await until_stopped(surface, parts(surface, chosen, starting or Starting()))


def parts(surface: Surface, chosen: Collection[str], starting: Starting) -> list[Part]:
    caches = Caches(surface.api, surface.metrics)
    office = Office(surface, caches, HandlerErrors(surface.metrics.registry))
    groups: Mapping[str, Callable[[], list[Part]]] = {
        "inventory": lambda: inventory.parts(office),
        "bootstrap": lambda: bootstrap.parts(office, starting),
        "pools": lambda: pools.parts(office),
        "ledger": lambda: _ledger(surface, caches),
        "limits": lambda: [limits(surface)],
    }
    working = [part for name in CONTROLLERS if name in chosen for part in groups[name]()]
    surface.checks.ready["caches"] = caches.behind
    return [*caches.parts(), *working]


def _ledger(surface: Surface, caches: Caches) -> list[Part]:
    if surface.settings.book == "InMemory":
        log.info("capacityManager is InMemory: the extender runs the controllers of the ledger")
        return []
    controllers = LedgerKeepers(surface, caches)
    ledgers = caches.follow(kinds.NODE_RESERVATIONS)
    metrics = LedgerMetrics(surface.metrics.registry)
    elector = election(surface, MANAGER_LEASE)

    async def lead(stop: asyncio.Event) -> None:
        async def work(leadership: Leadership) -> None:
            manager = ledger.shared(surface, ledgers, metrics, surface.api.fenced(leadership.require))
            try:
                await surface.orders.obeyed(
                    lambda end, _: controllers.run(manager, leadership, end, records=ledgers), stop
                )
            finally:
                await ledger.finish(manager)

        await elector.run(work, stop)

    return [controllers.events(), Part("controllers", lead), ledger.guard(surface)]
