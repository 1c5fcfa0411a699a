"""A group of controllers that run together under one lease."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from croupier.api.settings import Configuration
from croupier.controllers.shared.handler_metrics import HandlerErrors
from croupier.kube.client.api_client import Client
from croupier.kube.controller.leader_election import Leadership
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.serving.component_runner import Component
from croupier.wiring.live_settings import DependsOn
from croupier.wiring.process_context import InformerFactory, ProcessContext, Runnable, new_elector, run_all

RunnableFactory: TypeAlias = Callable[[Client, Configuration], list[Runnable]]


@dataclass(frozen=True, slots=True)
class ControllerGroup:
    """What a group needs of its process. The caches run from the start, so a new leadership costs nothing."""

    context: ProcessContext
    caches: InformerFactory
    errors: HandlerErrors

    def metrics(self, name: str) -> ControllerMetrics:
        return self.errors.of(name, self.context.metrics.controllers)

    def elected(
        self, name: str, lease: str, controllers: RunnableFactory, *, depends_on: DependsOn = lambda _: None
    ) -> Component:
        """`controllers` creates the controllers from a fenced client and the current settings.

        They are replaced when a setting in `depends_on` changes.
        """
        elector = new_elector(self.context, lease)

        async def lead(stop: asyncio.Event) -> None:
            async def work(leadership: Leadership) -> None:
                api = self.context.api.fenced(leadership.require)

                async def reconcile(ending: asyncio.Event, configuration: Configuration) -> None:
                    await run_all(controllers(api, configuration), leadership, ending)

                await self.context.live_settings.run_with(reconcile, stop, depends_on)

            await elector.run(work, stop)

        return Component(name, lead)
