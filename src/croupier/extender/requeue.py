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
from croupier.capacity.manager import CapacityManager
from croupier.core.placement.requeue_backoff import DEBOUNCE, RequeueBackoff
from croupier.extender.node_ranking import NodeRanking
from croupier.extender.pod_request import PodRequest
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock
from croupier.kube.client.errors import Conflict, KubeError, NotFound

log = structlog.get_logger(__name__)


class RefusedPodRequeuer:
    def __init__(self, api: Client, manager: CapacityManager, index: NodeRanking, clock: Clock) -> None:
        self._api = api
        self._index = index
        self._clock = clock
        self._backoff: RequeueBackoff[PodRequest] = RequeueBackoff()
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._unsubscribe = manager.subscribe(self._node_changed)

    def refused(self, request: PodRequest) -> None:
        self._backoff.add(request)

    def placed(self, uid: str) -> None:
        self._backoff.remove(uid)

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._clock.sleep(DEBOUNCE)
                able = self._backoff.due(self._fits, self._clock.monotonic())
                self._changed.clear()
                for asked in able:
                    await self._call(asked)
        finally:
            self._unsubscribe()

    def _fits(self, request: PodRequest) -> bool:
        """Whether the pod fits on a node that changed since the last check."""
        return any(self._index.fits(request, node) for node in self._changed)

    def _node_changed(self, node: str) -> None:
        if len(self._backoff):
            self._changed.add(node)
            self._wake.set()

    async def _call(self, request: PodRequest) -> None:
        name = request.key.partition("/")[2]
        patch = allocation.retry_patch(request.uid, self._clock.now())
        try:
            pod = await self._api.patch(kinds.PODS, name, patch, namespace=request.namespace)
        except (NotFound, Conflict):  # deleted, or replaced by another pod of that name
            self._backoff.remove(request.uid)
        except KubeError as error:
            log.warning(
                f"pod {request.key} would fit now and could not be requeued",
                pod=request.key,
                error=str(error),
            )
        else:
            if pod.spec.node_name:
                self._backoff.remove(request.uid)
