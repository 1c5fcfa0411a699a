"""A group of controllers that work together, in one term of office after the other."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from croupier.api.settings import Configuration
from croupier.controllers.handler_metrics import HandlerErrors
from croupier.kube.client import Client
from croupier.kube.elector import Leadership
from croupier.kube.run import Part
from croupier.kube.shift import Gauge
from croupier.wiring.settings import Minds
from croupier.wiring.surface import Caches, Keeper, Surface, all_of, election

Keepers: TypeAlias = Callable[[Client, Configuration], list[Keeper]]


@dataclass(frozen=True, slots=True)
class Office:
    """What a group needs of its process. What it follows, it follows from the start: a term costs nothing."""

    surface: Surface
    caches: Caches
    errors: HandlerErrors

    def gauge(self, name: str) -> Gauge:
        return self.errors.of(name, self.surface.metrics.controller(name))

    def elected(self, name: str, lease: str, keepers: Keepers, *, minds: Minds = lambda _: None) -> Part:
        """`keepers` get a client that writes only while the term lasts, and the settings of the day.

        Others take their place when what they mind of the settings changes.
        """
        elector = election(self.surface, lease)

        async def lead(stop: asyncio.Event) -> None:
            async def work(term: Leadership) -> None:
                api = self.surface.api.fenced(term.require)

                async def keep(ending: asyncio.Event, configuration: Configuration) -> None:
                    await all_of(keepers(api, configuration), term, ending)

                await self.surface.orders.obeyed(keep, stop, minds)

            await elector.run(work, stop)

        return Part(name, lead)
