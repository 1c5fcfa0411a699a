"""Requeues refused pods that would fit now.

kube-scheduler retries an unschedulable pod after an event that it knows, else after five minutes. It does
not know about ledger changes: a Reservation that ends, a hold that expires, or a deleted pod, whose cards
become free slightly after the scheduler's own retry. So refused pods are recorded, and when a node has
enough capacity for one and the scheduler has not retried it, its annotation `gpu.mps.io/look-again` is
written: an update of the pod moves it back to the scheduling queue.
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
        """Run until cancelled."""
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
        """Whether the pod fits on a node that changed since the last check."""
        return any(self._index.fits(asked, node) for node in self._changed)

    def _node_changed(self, node: str) -> None:
        if len(self._room):
            self._changed.add(node)
            self._wake.set()

    async def _call(self, asked: Asked) -> None:
        namespace, _, name = asked.key.partition("/")
        patch = allocation.look_again(asked.uid, self._clock.now())
        try:
            pod = await self._api.patch(kinds.PODS, name, patch, namespace=namespace)
        except (NotFound, Conflict):  # deleted, or replaced by another pod of that name
            self._room.leave(asked.uid)
        except KubeError as error:
            log.warning("could not requeue a pod that would fit now", pod=asked.key, error=str(error))
        else:
            if pod.spec.node_name:
                self._room.leave(asked.uid)
