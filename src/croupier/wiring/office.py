"""A group of controllers that run together under one lease."""

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
    """What a group needs of its process. The caches run from the start, so a new leadership costs nothing."""

    surface: Surface
    caches: Caches
    errors: HandlerErrors

    def gauge(self, name: str) -> Gauge:
        return self.errors.of(name, self.surface.metrics.controller(name))

    def elected(self, name: str, lease: str, keepers: Keepers, *, minds: Minds = lambda _: None) -> Part:
        """`controllers` creates the controllers from a fenced client and the current settings.

        They are replaced when a setting in `depends_on` changes.
        """
        elector = election(self.surface, lease)

        async def lead(stop: asyncio.Event) -> None:
            async def work(leadership: Leadership) -> None:
                api = self.surface.api.fenced(leadership.require)

                async def reconcile(ending: asyncio.Event, configuration: Configuration) -> None:
                    await all_of(keepers(api, configuration), leadership, ending)

                await self.surface.orders.obeyed(reconcile, stop, minds)

            await elector.run(work, stop)

        return Part(name, lead)
