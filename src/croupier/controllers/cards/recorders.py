"""Event recorders for cards: each transition has an owner, which reports its Event."""

import asyncio

from croupier.core.cards.lifecycle import BOOTSTRAP, INVENTORY, LEDGER, POOL, PhaseOwner
from croupier.kube.client.api_client import Client
from croupier.kube.controller.events import EventMetrics, EventRecorder


class CardEventRecorders:
    """One recorder for each owner."""

    def __init__(self, api: Client, gauge: EventMetrics | None = None) -> None:
        owners: tuple[PhaseOwner, ...] = (INVENTORY, BOOTSTRAP, POOL, LEDGER)
        self._recorders = {owner: EventRecorder(api, owner) for owner in owners}
        if gauge is not None:
            for recorder in self._recorders.values():
                recorder.gauge = gauge

    def of(self, owner: PhaseOwner) -> EventRecorder:
        return self._recorders[owner]

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for recorder in self._recorders.values():
                group.create_task(recorder.run(stop))
