"""A group of controllers that work together, in one term of office after the other."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from croupier.controllers.handler_metrics import HandlerErrors
from croupier.kube.client import Client
from croupier.kube.elector import Leadership
from croupier.kube.run import Part
from croupier.kube.shift import Gauge
from croupier.wiring.surface import Caches, Keeper, Surface, all_of, election


@dataclass(frozen=True, slots=True)
class Office:
    """What a group needs of its process. What it follows, it follows from the start: a term costs nothing."""

    surface: Surface
    caches: Caches
    errors: HandlerErrors

    def gauge(self, name: str) -> Gauge:
        return self.errors.of(name, self.surface.metrics.controller(name))

    def elected(self, name: str, lease: str, keepers: Callable[[Client], list[Keeper]]) -> Part:
        """`keepers` get a client that writes only while the term lasts."""
        elector = election(self.surface, lease)

        async def lead(stop: asyncio.Event) -> None:
            async def work(term: Leadership) -> None:
                await all_of(keepers(self.surface.api.fenced(term.require)), term, stop)

            await elector.run(work, stop)

        return Part(name, lead)
