"""`croupier manager`: the controllers, under elections."""

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
"""Groups that can run apart, each under its own account."""

log = structlog.get_logger(__name__)


async def work(
    settings: Settings, chosen: Collection[str] = CONTROLLERS, starting: Starting | None = None
) -> int:
    """The controllers that were chosen. With the book in memory those of the ledger run where it is kept."""
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
        log.info("capacityManager is InMemory: croupier extender keeps the ledger and decides Reservations")
        return []
    keepers = LedgerKeepers(surface, caches)
    ledgers = caches.follow(kinds.NODE_RESERVATIONS)
    figures = LedgerMetrics(surface.metrics.registry)
    elector = election(surface, MANAGER_LEASE)

    async def lead(stop: asyncio.Event) -> None:
        async def work(term: Leadership) -> None:
            book = ledger.shared(surface, ledgers, figures, surface.api.fenced(term.require))
            try:
                await surface.orders.obeyed(
                    lambda end, _: keepers.run(book, term, end, records=ledgers), stop
                )
            finally:
                await ledger.finish(book)

        await elector.run(work, stop)

    return [keepers.events(), Part("controllers", lead), ledger.guard(surface)]
