"""Pods that the scheduler lets sleep although a node has come by what they wait for.

kube-scheduler tries a pod again when a node changes so that it would fit. It judges that by all the pod
requests, our mark included, which no node has and which only its filter knows to pass over (1.36,
`noderesources.isFit`). So a pod with the mark that was refused for want of anything else of a node, the
resource of a pool that is served a moment later for one, would sleep for five minutes. Whoever sleeps so is
woken here, by a change of the pod itself; those whom the ledger refused the extender wakes.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from croupier.api import kinds, occupancy
from croupier.api.core_v1 import Node, Pod
from croupier.api.mps import allocation
from croupier.api.mps.allocation import MARK
from croupier.controllers.watched import Watched
from croupier.core.placing import waiting
from croupier.core.placing.waiting import WaitingRoom
from croupier.core.pods.effective import Amounts
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import Conflict, KubeError, NotFound
from croupier.kube.shift import ANYONE, Authority
from croupier.kube.store import Change
from croupier.kube.together import first

RECENT: Final = 10.0
"""Seconds for which what a node came by may have been missed by a refusal that we hear of later."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sleeper:
    namespace: str
    name: str
    uid: str
    priority: int
    requests: Amounts = field(default_factory=dict)


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
        offers = [_has(node) for name in self._opened if (node := self._nodes.named(name)) is not None]
        able = self._room.call(lambda one: any(waiting.could(one.requests, has) for has in offers), now)
        for one in able:
            await self._look_again(one)
        if len(able) == waiting.MOST_AT_ONCE:
            self._wake.set()  # there are more

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is not None:
            self._judge(change.new)
        elif change.old is not None:
            self._room.leave(change.old.metadata.uid)

    def _judge(self, pod: Pod) -> None:
        meta = pod.metadata
        if not _is_refused(pod) or MARK not in (requests := occupancy.requests(pod)):
            self._room.leave(meta.uid)
            return
        self._room.enter(Sleeper(meta.namespace, meta.name, meta.uid, pod.spec.priority, requests))
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

    async def _look_again(self, one: Sleeper) -> None:
        patch = allocation.look_again(one.uid, self._clock.now())
        try:
            await self._api.patch(kinds.PODS, one.name, patch, namespace=one.namespace)
        except (NotFound, Conflict):  # gone, or another of its name
            self._room.leave(one.uid)
        except KubeError as error:
            log.warning("a pod was not woken", pod=f"{one.namespace}/{one.name}", error=str(error))
        else:
            log.info("woke a pod that a node may have room for now", pod=f"{one.namespace}/{one.name}")


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
