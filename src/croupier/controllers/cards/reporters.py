"""Event recorders for cards: each transition has an owner, which reports its Event."""

import asyncio

from croupier.core.cards.lifecycle import BOOTSTRAP, INVENTORY, LEDGER, POOL, Owner
from croupier.kube.client import Client
from croupier.kube.events import Gauge, Recorder


class Reporters:
    """One recorder for each owner."""

    def __init__(self, api: Client, gauge: Gauge | None = None) -> None:
        owners: tuple[Owner, ...] = (INVENTORY, BOOTSTRAP, POOL, LEDGER)
        self._recorders = {owner: Recorder(api, owner) for owner in owners}
        if gauge is not None:
            for recorder in self._recorders.values():
                recorder.gauge = gauge

    def of(self, owner: Owner) -> Recorder:
        return self._recorders[owner]

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for recorder in self._recorders.values():
                group.create_task(recorder.run(stop))
