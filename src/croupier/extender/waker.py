"""Pods that were refused and could be placed now: tell the scheduler to ask again.

kube-scheduler tries a refused pod again when something happens that it knows of, else after five
minutes. It knows nothing of the ledger: a Reservation that ends, a hold that expires, and above all
a pod's cards, which are free only a moment after the pod is gone, when the scheduler has asked
already. So whoever was refused is remembered, and when a node has room for it and nobody asked
meanwhile, its annotation `gpu.mps.io/look-again` is written: a change of the pod itself wakes it.
"""

import asyncio

import structlog

from croupier.api import kinds
from croupier.api.mps import allocation
from croupier.core.placing.waiting import PAUSE, WaitingRoom
from croupier.extender.asked import Asked
from croupier.extender.index import Index, Ledgers
from croupier.kube.client import Client
from croupier.kube.clock import Clock
from croupier.kube.errors import Conflict, KubeError, NotFound

log = structlog.get_logger(__name__)


class Waker:
    def __init__(self, api: Client, book: Ledgers, index: Index, clock: Clock) -> None:
        self._api = api
        self._index = index
        self._clock = clock
        self._room: WaitingRoom[Asked] = WaitingRoom()
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._unsubscribe = book.subscribe(self._node_changed)

    def refused(self, asked: Asked) -> None:
        self._room.enter(asked)

    def placed(self, uid: str) -> None:
        self._room.leave(uid)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._clock.sleep(PAUSE)
                able = self._room.call(self._fits, self._clock.monotonic())
                self._changed.clear()
                for asked in able:
                    await self._call(asked)
        finally:
            self._unsubscribe()

    def _fits(self, asked: Asked) -> bool:
        """On a node that changed since we last looked."""
        return any(self._index.fits(asked, node) for node in self._changed)

    def _node_changed(self, node: str) -> None:
        if len(self._room):
            self._changed.add(node)
            self._wake.set()

    async def _call(self, asked: Asked) -> None:
        namespace, _, name = asked.key.partition("/")
        patch = allocation.look_again(asked.uid, self._clock.now())
        try:
            found = await self._api.patch(kinds.PODS, name, patch, namespace=namespace)
        except (NotFound, Conflict):  # gone, or another of its name
            self._room.leave(asked.uid)
        except KubeError as error:
            log.warning("a pod that could be placed was not woken", pod=asked.key, error=str(error))
        else:
            if found.spec.node_name:
                self._room.leave(asked.uid)
