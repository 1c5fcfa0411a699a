"""`croupier manager`: the controllers, under elections."""

import asyncio
from typing import Final

import structlog

from croupier.api import kinds
from croupier.book import switch
from croupier.book.metrics import LedgerMetrics
from croupier.kube.elector import Leadership
from croupier.kube.run import Part
from croupier.wiring import cards, ledger
from croupier.wiring.cards import Starting
from croupier.wiring.ledger import LedgerKeepers
from croupier.wiring.limits import limits
from croupier.wiring.surface import Caches, Settings, Surface, election, surfaced, until_stopped

MANAGER_LEASE: Final = "croupier-manager"

log = structlog.get_logger(__name__)


async def work(settings: Settings, starting: Starting | None = None) -> int:
    """The controllers, under elections. With the book in memory those of the ledger run where it is kept."""
    async with surfaced(settings) as surface:
        caches = Caches(surface.api, surface.metrics)
        surface.checks.ready["caches"] = caches.behind
        parts = [*cards.parts(surface, caches, starting or Starting()), limits(surface)]
        if settings.book == "CRD":
            await switch.guard(surface.api, settings.namespace)
            parts += _ledger(surface, caches)
        else:
            log.info(
                "capacityManager is InMemory: croupier extender keeps the ledger and decides Reservations"
            )
        return await until_stopped(surface, [*caches.parts(), *parts])


def _ledger(surface: Surface, caches: Caches) -> list[Part]:
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

    return [keepers.events(), Part("controllers", lead), ledger.guard(surface)]
