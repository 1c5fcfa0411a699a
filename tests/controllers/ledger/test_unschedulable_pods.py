"""Unschedulable pods are requeued when a node gains the resource they need."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.api.core_v1 import Pod
from croupier.api.meta import ObjectMeta
from croupier.api.mps.allocation import MARK
from croupier.controllers.ledger.unschedulable_pods import (
    GAIN_MEMORY,
    UnschedulablePod,
    UnschedulablePodRequeuer,
)
from croupier.core import quantity
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import Conflict
from tests.controllers.ledger_env import requeueing
from tests.node.simulated_env import OffsetClock
from tests.polling import until_async

NODE = "opens-late"
OTHER_NODE = "opens-for-the-marker"
NODES_OF_TEST = {"croupier.test": "unschedulable-pods"}
POOL = "gpu.deckhouse.io/team-a"
MARKER = "gpu.deckhouse.io/marker"
"""A resource of a pod that is requeued last: what was not requeued by then is not requeued."""
REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient"}
HAS = {"cpu": "4", "memory": "8Gi", "pods": "10"}


@dataclass
class SchedulingEnv:
    api: Client
    namespace: str
    clock: OffsetClock = field(default_factory=OffsetClock)
    woken: set[str] = field(default_factory=set)
    """Pods whose status ever reported more than they request."""

    async def add_node(self, name: str) -> None:
        await self.api.create(kinds.NODES, {"metadata": {"name": name, "labels": NODES_OF_TEST}})
        await self.node_has(node=name)

    async def node_has(self, pool: str = "", *, node: str = NODE, resource: str = POOL) -> None:
        amounts = {**HAS, **({resource: pool} if pool else {})}
        status = {"status": {"allocatable": amounts, "capacity": amounts}}
        await self.api.patch(kinds.NODES, node, status, subresource="status")

    async def only_marker_is_woken(self, node: str) -> None:
        """The node gains what a new pod waits for; every earlier change was handled before that."""
        await self.sleeps("marker", resource=MARKER)
        await self.node_has(node=node, pool="50", resource=MARKER)
        await self.until_woken("marker")
        assert self.woken == {"marker"}

    async def sleeps(
        self,
        name: str,
        *,
        marked: bool = True,
        refused: bool = True,
        pool: str = "50",
        resource: str = POOL,
    ) -> None:
        asked = {resource: pool, **({MARK: "1"} if marked else {})}
        container = {"name": "main", "image": "any", "resources": {"limits": asked}}
        body = {"metadata": {"name": name}, "spec": {"schedulerName": "none", "containers": [container]}}
        await self.api.create(kinds.PODS, body, namespace=self.namespace)
        if refused:
            await self.refuse(name)

    async def get(self, name: str) -> Pod:
        return await self.api.get(kinds.PODS, name, namespace=self.namespace)

    async def runs(self, name: str) -> None:
        """Bind the pod, and report it as running like a kubelet."""
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
        await self.api.create(kinds.PODS, target, namespace=self.namespace, name=name, subresource="binding")
        state = {"name": "main", "image": "any", "imageID": "any", "ready": True, "restartCount": 0}
        status = {"status": {"phase": "Running", "containerStatuses": [state]}}
        await self.api.patch(kinds.PODS, name, status, namespace=self.namespace, subresource="status")

    async def refuse(self, name: str) -> None:
        status = {"status": {"conditions": [REFUSED]}}
        await self.api.patch(kinds.PODS, name, status, namespace=self.namespace, subresource="status")

    def _see(self, change: ObjectChange[Pod]) -> None:
        if (pod := change.new) is None:
            return
        if any(
            container.resources and MARK in container.resources.requests
            for container in pod.status.container_statuses
        ):
            self.woken.add(pod.metadata.name)

    async def until_woken(self, *names: str) -> None:
        """Wait until the pods were requeued and their status was reverted."""

        async def quiet() -> bool:
            found = await self.api.list(kinds.PODS, Selection(self.namespace))
            return self.woken >= set(names) and not any(pod.status.container_statuses for pod in found.items)

        await until_async(quiet, f"{names} to be woken")

    @contextlib.asynccontextmanager
    async def works(self) -> AsyncIterator[None]:
        here = Selection(labels=",".join(f"{key}={value}" for key, value in NODES_OF_TEST.items()))
        async with requeueing(self.api, self.namespace, here, self.clock) as pending:
            with contextlib.ExitStack() as stack:
                stack.callback(pending.store.subscribe(self._see))
                yield


@pytest_asyncio.fixture
async def env(cluster: Any, clean_cluster: None, namespace: str) -> AsyncIterator[SchedulingEnv]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        made = SchedulingEnv(api, namespace)
        await made.add_node(NODE)
        yield made


async def test_only_pods_that_fit_a_node_with_a_new_resource_are_requeued(env: SchedulingEnv):
    await env.sleeps("half")
    await env.sleeps("too-much", pool="200")
    await env.sleeps("not-ours", marked=False)
    await env.sleeps("not-refused", refused=False)
    async with env.works():
        await env.only_marker_is_woken(NODE)  # the node has nothing for the others

        await env.node_has(pool="100")
        await env.until_woken("half")

        await env.refuse("not-refused")  # it asked a moment too early, and we hear of it after
        await env.until_woken("not-refused")
    assert env.woken == {"marker", "half", "not-refused"}


async def test_a_new_leader_requeues_pods_that_were_missed(env: SchedulingEnv):
    await env.sleeps("half")
    await env.node_has(pool="100")
    async with env.works():
        await env.until_woken("half")


async def test_a_heartbeat_of_a_node_requeues_no_pod(env: SchedulingEnv):
    await env.node_has(pool="100")
    async with env.works():
        await env.sleeps("half", refused=False)
        env.clock.ahead = 2 * GAIN_MEMORY
        await env.refuse("half")
        ready = {"type": "Ready", "status": "True", "reason": "Well", "message": ""}
        status = {"status": {"conditions": [ready]}}
        await env.api.patch(kinds.NODES, NODE, status, subresource="status")
        await env.add_node(OTHER_NODE)
        await env.only_marker_is_woken(OTHER_NODE)


class ConflictingRequeuer(UnschedulablePodRequeuer):
    """Another client changes the pod between the two writes of a requeue."""

    def __init__(self, env: SchedulingEnv, interfere: Callable[[], Awaitable[None]]) -> None:
        empty: Any = SimpleNamespace(store=())
        super().__init__(empty, empty, env.api)
        self._interfere = interfere

    async def _status(self, of: ObjectMeta, containers: list[dict[str, Any]]) -> Pod:
        written = await super()._status(of, containers)
        if containers:
            await self._interfere()
        return written


async def test_a_change_between_the_two_writes_is_reverted(env: SchedulingEnv):
    await env.sleeps("half")
    note = {"metadata": {"annotations": {"example.com/note": "changed"}}}

    async def annotated() -> None:
        await env.api.patch(kinds.PODS, "half", note, namespace=env.namespace)

    pod = await env.get("half")
    await ConflictingRequeuer(env, annotated)._requeue(unschedulable_pod(pod))

    assert (await env.get("half")).status.container_statuses == ()


async def test_a_status_written_by_a_kubelet_is_never_overwritten(env: SchedulingEnv):
    await env.sleeps("half")
    pod = await env.get("half")

    async def runs() -> None:
        await env.runs("half")

    await ConflictingRequeuer(env, runs)._requeue(unschedulable_pod(pod))
    assert [container.ready for container in (await env.get("half")).status.container_statuses] == [True]

    with pytest.raises(Conflict):
        await ConflictingRequeuer(env, runs)._requeue(unschedulable_pod(pod))
    assert [container.ready for container in (await env.get("half")).status.container_statuses] == [True]


def unschedulable_pod(pod: Pod) -> UnschedulablePod:
    return UnschedulablePod(pod, {MARK: quantity.parse("1")})
