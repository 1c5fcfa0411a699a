"""Who tells of a card: each step of its life has an owner, and its Event comes from there."""

import asyncio

from croupier.core.cards.lifecycle import BOOTSTRAP, INVENTORY, LEDGER, POOL, Owner
from croupier.kube.client import Client
from croupier.kube.events import Gauge, Recorder


class Reporters:
    """One recorder for each owner, all written by one process."""

    def __init__(self, api: Client, gauge: Gauge | None = None) -> None:
        owners: tuple[Owner, ...] = (INVENTORY, BOOTSTRAP, POOL, LEDGER)
        self._recorders = {owner: Recorder(api, owner) for owner in owners}
        if gauge is not None:
            for one in self._recorders.values():
                one.gauge = gauge

    def of(self, owner: Owner) -> Recorder:
        return self._recorders[owner]

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for one in self._recorders.values():
                group.create_task(one.run(stop))
