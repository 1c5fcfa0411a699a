"""Pods that the scheduler lets sleep although a node has come by what they wait for.

kube-scheduler tries a pod again when a node changes so that it would fit. It judges that by all the pod
requests, our mark included, which no node has and which only its filter knows to pass over (1.36,
`noderesources.isFit`). So a pod with the mark that was refused for want of anything else of a node, the
resource of a pool that is served a moment later for one, would sleep for five minutes. Whoever sleeps so is
woken here; those whom the ledger refused the extender wakes.

An annotation wakes whom an extender refused, but nobody who lacked a resource. Such a pod is tried again
when it asks for less than before, and what it asks for is read from its status as well, for resizing's
sake. So its status says for a moment that it has the mark once more than it asks for, which nobody counts:
no node has the mark, and the scheduler's filter passes over it. Both writes are for the very version that
was seen, because a kubelet may already write there.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import structlog

from croupier.api import kinds, occupancy
from croupier.api.core_v1 import Node, Pod
from croupier.api.meta import ObjectMeta
from croupier.api.mps.allocation import MARK
from croupier.controllers.watched import Watched
from croupier.core import quantity
from croupier.core.placing import waiting
from croupier.core.placing.waiting import WaitingRoom
from croupier.core.pods.effective import Amounts
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import Conflict, KubeError, NotFound
from croupier.kube.shift import ANYONE, Authority
from croupier.kube.store import Change
from croupier.kube.together import first

ONE: Final = quantity.parse("1")
KNOCKS: Final = 5
"""How often to take back what a knock wrote, while others change the pod."""
RECENT: Final = 10.0
"""Seconds for which what a node came by may have been missed by a refusal that we hear of later."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sleeper:
    pod: Pod
    requests: Amounts

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def priority(self) -> int:
        return self.pod.spec.priority


class Sleepers:
    """`pending` are pods without a node. `api` is fenced by the caller, where there is an election."""

    def __init__(
        self, pending: Watched[Pod], nodes: Watched[Node], api: Client, clock: Clock | None = None
    ) -> None:
        self._pending = pending.store
        self._nodes = nodes.store
        self._api = api
        self._clock = clock or SystemClock()
        self._room: WaitingRoom[Sleeper] = WaitingRoom()
        self._opened: dict[str, float] = {}
        """Nodes that lately came by something, and when."""
        self._wake = asyncio.Event()

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        ends = (self._pending.subscribe(self._pod_changed), self._nodes.subscribe(self._node_changed))
        now = self._clock.monotonic()
        self._opened = {node.metadata.name: now for node in self._nodes}  # who came by what is not known
        for pod in self._pending:
            self._judge(pod)
        try:
            while not stop.is_set() and authority.held():
                await first(stop, self._wake.wait())
                self._wake.clear()
                await first(stop, self._clock.sleep(waiting.PAUSE))
                await self._call()
        finally:
            for end in ends:
                end()

    async def _call(self) -> None:
        now = self._clock.monotonic()
        self._opened = {node: at for node, at in self._opened.items() if now - at < RECENT}
        if not (self._opened and len(self._room)):
            return
        opened = (_has(node) for name in self._opened if (node := self._nodes.named(name)) is not None)
        offers = {frozenset(has.items()): has for has in opened}.values()  # a fleet has few kinds of nodes
        able = self._room.call(lambda one: any(waiting.could(one.requests, has) for has in offers), now)
        for one in able:
            await self._call_one(one)
        self._wake.set()  # there may be more, or one was called before the scheduler knew of the node

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is not None:
            self._judge(change.new)
        elif change.old is not None:
            self._room.leave(change.old.metadata.uid)

    def _judge(self, pod: Pod) -> None:
        if not _is_refused(pod) or MARK not in (requests := occupancy.requests(pod)):
            self._room.leave(pod.metadata.uid)
            return
        self._room.enter(Sleeper(pod, requests))
        self._wake.set()

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None:
            self._opened.pop(change.key.name, None)
            return
        old, new = change.old, change.new
        if old is not None and old.status.allocatable == new.status.allocatable:
            return  # nearly all changes of a node are signs of life
        if waiting.opens(None if old is None else _has(old), _has(new)):
            self._opened[change.key.name] = self._clock.monotonic()
            self._wake.set()

    async def _call_one(self, one: Sleeper) -> None:
        try:
            await self._knock(one)
        except NotFound:
            self._room.leave(one.uid)
        except Conflict:
            return  # it has changed: we hear of it, and judge it anew
        except KubeError as error:
            log.warning("a pod was not woken", pod=one.pod.metadata.key, error=str(error))
        else:
            log.info("woke a pod that a node may have room for now", pod=one.pod.metadata.key)

    async def _knock(self, one: Sleeper) -> None:
        meta, first_container = one.pod.metadata, one.pod.spec.containers[0].name
        more = {MARK: quantity.text(one.requests[MARK] + ONE)}
        entry = {"name": first_container, "image": "", "imageID": "", "ready": False, "restartCount": 0}
        loud = await self._status(meta, [{**entry, "resources": {"requests": more}}])
        for _ in range(KNOCKS):
            if loud.spec.node_name:
                return  # what is there now is its kubelet's
            try:
                await self._status(loud.metadata, [])
            except Conflict:
                loud = await self._api.get(kinds.PODS, meta.name, namespace=meta.namespace)
            else:
                return

    async def _status(self, of: ObjectMeta, containers: list[dict[str, Any]]) -> Pod:
        """Nothing is written if the pod is another one, or has changed since."""
        version = {"uid": of.uid, "resourceVersion": of.resource_version}
        patch = {"metadata": version, "status": {"containerStatuses": containers}}
        return await self._api.patch(kinds.PODS, of.name, patch, namespace=of.namespace, subresource="status")


def _is_refused(pod: Pod) -> bool:
    """The scheduler has said so, and nothing of it has begun since."""
    if pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
        return False
    return any(
        one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable"
        for one in pod.status.conditions
    )


def _has(node: Node) -> Amounts:
    return occupancy.offer(node)[0]
