"""`croupier manager`: the controllers, under elections."""

import asyncio
from typing import Final

import structlog

from croupier.api import kinds
from croupier.book import switch
from croupier.book.metrics import LedgerMetrics
from croupier.kube.elector import Leadership
from croupier.kube.run import Part
from croupier.wiring import ledger
from croupier.wiring.ledger import LedgerKeepers
from croupier.wiring.limits import limits
from croupier.wiring.surface import Caches, Settings, Surface, election, surfaced, until_stopped

MANAGER_LEASE: Final = "croupier-manager"

log = structlog.get_logger(__name__)


async def work(settings: Settings) -> int:
    """The controllers, under an election. With the book in memory they run where it is kept: not here."""
    async with surfaced(settings) as surface:
        if settings.book == "InMemory":
            log.info(
                "capacityManager is InMemory: croupier extender keeps the ledger and decides Reservations"
            )
            return await until_stopped(surface, [limits(surface)])
        await switch.guard(surface.api, settings.namespace)
        return await _manage(surface)


async def _manage(surface: Surface) -> int:
    caches = Caches(surface.api, surface.metrics)
    keepers = LedgerKeepers(surface, caches)
    ledgers = caches.follow(kinds.NODE_RESERVATIONS)
    figures = LedgerMetrics(surface.metrics.registry)
    elector = election(surface, MANAGER_LEASE)

    async def lead(stop: asyncio.Event) -> None:
        async def work(term: Leadership) -> None:
            book = ledger.shared(surface, ledgers, figures, surface.api.fenced(term.require))
            try:
                await keepers.run(book, term, stop, records=ledgers)
            finally:
                await ledger.finish(book)

        await elector.run(work, stop)

    surface.checks.ready["caches"] = caches.behind
    parts = [
        *caches.parts(),
        keepers.events(),
        Part("controllers", lead),
        ledger.guard(surface),
        limits(surface),
    ]
    return await until_stopped(surface, parts)
