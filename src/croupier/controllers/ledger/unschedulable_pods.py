"""Requeues unschedulable pods when a node gains the resource they need.

kube-scheduler retries a pod when a node changes such that the pod would fit. That check considers all
requests of the pod, including Croupier's mark resource, which no node has and which only the scheduler's
filter ignores (1.36, `noderesources.isFit`). So a marked pod that was refused for lack of another resource,
for example of a pool that becomes available a moment later, would wait for five minutes. Such pods are
requeued here; the extender requeues the pods that were refused because of the ledger.

Changing an annotation requeues pods that an extender refused, but not pods that lack a resource. The
scheduler retries those when they request less than before, and it reads requests from the pod's status too
(for in-place resize). So the status briefly reports one mark more than requested, and then reports it no
more. That has no other effect, because no node has the mark and the scheduler's filter ignores it. Both
writes have the read version as precondition, because a kubelet may already write the status.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import structlog

from croupier.api import kinds, pod_requests
from croupier.api.core_v1 import Node, Pod
from croupier.api.meta import ObjectMeta
from croupier.api.mps.allocation import MARK
from croupier.core import quantity
from croupier.core.placement import requeue_backoff
from croupier.core.placement.requeue_backoff import RequeueBackoff
from croupier.core.pods.effective_requests import Amounts
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.concurrency import wait_or_stop
from croupier.kube.client.errors import Conflict, KubeError, NotFound
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck

ONE: Final = quantity.parse("1")
REVERT_ATTEMPTS: Final = 5
"""Attempts to revert the status while other clients change the pod."""
GAIN_MEMORY: Final = 10.0
"""Seconds for which a node's gain is remembered: a refusal that ignored it may be observed later."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UnschedulablePod:
    pod: Pod
    requests: Amounts

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def priority(self) -> int:
        return self.pod.spec.priority


class UnschedulablePodRequeuer:
    """`pending` are pods without a node. The caller fences `api` if there is leader election."""

    def __init__(
        self, pending: Informer[Pod], nodes: Informer[Node], api: Client, clock: Clock | None = None
    ) -> None:
        self._pending = pending.store
        self._nodes = nodes.store
        self._api = api
        self._clock = clock or SystemClock()
        self._backoff: RequeueBackoff[UnschedulablePod] = RequeueBackoff()
        self._gained: dict[str, float] = {}
        """Nodes that recently gained a resource, and when."""
        self._wake = asyncio.Event()

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        ends = (self._pending.subscribe(self._pod_changed), self._nodes.subscribe(self._node_changed))
        now = self._clock.monotonic()
        self._gained = {node.metadata.name: now for node in self._nodes}  # earlier gains are unknown
        for pod in self._pending:
            self._update(pod)
        try:
            while not stop.is_set() and leader_check.held():
                await wait_or_stop(stop, self._wake.wait())
                self._wake.clear()
                await wait_or_stop(stop, self._clock.sleep(requeue_backoff.DEBOUNCE))
                await self._requeue_fitting()
        finally:
            for end in ends:
                end()

    async def _requeue_fitting(self) -> None:
        now = self._clock.monotonic()
        self._gained = {node: at for node, at in self._gained.items() if now - at < GAIN_MEMORY}
        if not (self._gained and len(self._backoff)):
            return
        opened = (
            _allocatable(node) for name in self._gained if (node := self._nodes.named(name)) is not None
        )
        offers = {frozenset(has.items()): has for has in opened}.values()  # a fleet has few kinds of nodes
        able = self._backoff.due(
            lambda waiter: any(requeue_backoff.fits_allocatable(waiter.requests, has) for has in offers), now
        )
        for waiter in able:
            await self._requeue_one(waiter)
        self._wake.set()  # more pods may fit, or the scheduler did not know the node yet

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        if change.new is not None:
            self._update(change.new)
        elif change.old is not None:
            self._backoff.remove(change.old.metadata.uid)

    def _update(self, pod: Pod) -> None:
        if not _is_refused(pod) or MARK not in (requests := pod_requests.requests(pod)):
            self._backoff.remove(pod.metadata.uid)
            return
        self._backoff.add(UnschedulablePod(pod, requests))
        self._wake.set()

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        if change.new is None:
            self._gained.pop(change.key.name, None)
            return
        old, new = change.old, change.new
        if old is not None and old.status.allocatable == new.status.allocatable:
            return  # nearly all changes of a node are heartbeats
        if requeue_backoff.gained_resources(None if old is None else _allocatable(old), _allocatable(new)):
            self._gained[change.key.name] = self._clock.monotonic()
            self._wake.set()

    async def _requeue_one(self, waiter: UnschedulablePod) -> None:
        try:
            await self._requeue(waiter)
        except NotFound:
            self._backoff.remove(waiter.uid)
        except Conflict:
            return  # the pod has changed: its watch event enqueues it again
        except KubeError as error:
            log.warning(
                f"pod {waiter.pod.metadata.key} cannot be requeued",
                pod=waiter.pod.metadata.key,
                error=str(error),
            )
        else:
            log.info(
                f"pod {waiter.pod.metadata.key} was requeued because it may fit on a node now",
                pod=waiter.pod.metadata.key,
            )

    async def _requeue(self, waiter: UnschedulablePod) -> None:
        meta, first_container = waiter.pod.metadata, waiter.pod.spec.containers[0].name
        more = {MARK: quantity.text(waiter.requests[MARK] + ONE)}
        entry = {"name": first_container, "image": "", "imageID": "", "ready": False, "restartCount": 0}
        pod = await self._status(meta, [{**entry, "resources": {"requests": more}}])
        for _ in range(REVERT_ATTEMPTS):
            if pod.spec.node_name:
                return  # the kubelet owns the status now
            try:
                await self._status(pod.metadata, [])
            except Conflict:
                pod = await self._api.get(kinds.PODS, meta.name, namespace=meta.namespace)
            else:
                return

    async def _status(self, of: ObjectMeta, containers: list[dict[str, Any]]) -> Pod:
        """Write the status of exactly this version of the pod."""
        version = {"uid": of.uid, "resourceVersion": of.resource_version}
        patch = {"metadata": version, "status": {"containerStatuses": containers}}
        return await self._api.patch(kinds.PODS, of.name, patch, namespace=of.namespace, subresource="status")


def _is_refused(pod: Pod) -> bool:
    """The scheduler has set Unschedulable, and the pod is neither bound nor being deleted."""
    if pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
        return False
    return any(
        condition.type == "PodScheduled"
        and condition.status == "False"
        and condition.reason == "Unschedulable"
        for condition in pod.status.conditions
    )


def _allocatable(node: Node) -> Amounts:
    return pod_requests.capacity_of(node)[0]
