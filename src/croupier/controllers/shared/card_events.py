"""Event recorders for cards: each transition has an owner, which reports its Event."""

import asyncio

from prometheus_client import CollectorRegistry

from croupier.core.cards.lifecycle import BOOTSTRAP, INVENTORY, LEDGER, POOL, PhaseOwner
from croupier.kube.client.api_client import Client
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.metrics import EventMetrics


class CardEventRecorders:
    """One recorder for each owner."""

    def __init__(self, api: Client, metrics: EventMetrics | None = None) -> None:
        metrics = metrics or EventMetrics(CollectorRegistry())
        owners: tuple[PhaseOwner, ...] = (INVENTORY, BOOTSTRAP, POOL, LEDGER)
        self._recorders = {owner: EventRecorder(api, owner, metrics=metrics) for owner in owners}

    def of(self, owner: PhaseOwner) -> EventRecorder:
        return self._recorders[owner]

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for recorder in self._recorders.values():
                group.create_task(recorder.run(stop))
