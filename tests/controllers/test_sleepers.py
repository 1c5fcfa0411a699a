"""Unschedulable pods are requeued when a node gains the resource they need."""

import asyncio
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
from croupier.controllers.ledger.sleepers import RECENT, Sleeper, Sleepers
from croupier.core import quantity
from croupier.kube import client, config
from croupier.kube.client import Client, Selection
from croupier.kube.errors import Conflict
from croupier.kube.store import Change
from tests.controllers.world import waking
from tests.kube.waiting import until_async
from tests.node.simulation import Later

NODE = "opens-late"
POOL = "gpu.deckhouse.io/team-a"
REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient"}
HAS = {"cpu": "4", "memory": "8Gi", "pods": "10"}


@dataclass
class Dormitory:
    api: Client
    namespace: str
    clock: Later = field(default_factory=Later)
    woken: set[str] = field(default_factory=set)
    """Pods whose status ever reported more than they request."""

    async def node_has(self, pool: str = "") -> None:
        amounts = {**HAS, **({POOL: pool} if pool else {})}
        status = {"status": {"allocatable": amounts, "capacity": amounts}}
        await self.api.patch(kinds.NODES, NODE, status, subresource="status")

    async def sleeps(self, name: str, *, marked: bool = True, refused: bool = True, pool: str = "50") -> None:
        asked = {POOL: pool, **({MARK: "1"} if marked else {})}
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

    def _see(self, change: Change[Pod]) -> None:
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
        here = Selection(fields=f"metadata.name={NODE}")
        async with waking(self.api, self.namespace, here, self.clock) as pending:
            with contextlib.ExitStack() as stack:
                stack.callback(pending.store.subscribe(self._see))
                yield


@pytest_asyncio.fixture
async def dormitory(cluster: Any, clean_cluster: None, namespace: str) -> AsyncIterator[Dormitory]:
    async with client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        await api.create(kinds.NODES, {"metadata": {"name": NODE}})
        made = Dormitory(api, namespace)
        await made.node_has()
        yield made


async def test_only_pods_that_fit_a_node_with_a_new_resource_are_requeued(dormitory: Dormitory):
    await dormitory.sleeps("half")
    await dormitory.sleeps("too-much", pool="200")
    await dormitory.sleeps("not-ours", marked=False)
    await dormitory.sleeps("not-refused", refused=False)
    async with dormitory.works():
        await asyncio.sleep(1.5)
        assert dormitory.woken == set(), "a node that has nothing for them is nothing to wake for"

        await dormitory.node_has(pool="100")
        await dormitory.until_woken("half")

        await dormitory.refuse("not-refused")  # it asked a moment too early, and we hear of it after
        await dormitory.until_woken("not-refused")
    assert dormitory.woken == {"half", "not-refused"}


async def test_a_new_leader_requeues_pods_that_were_missed(dormitory: Dormitory):
    await dormitory.sleeps("half")
    await dormitory.node_has(pool="100")
    async with dormitory.works():
        await dormitory.until_woken("half")


async def test_a_heartbeat_of_a_node_requeues_no_pod(dormitory: Dormitory):
    await dormitory.node_has(pool="100")
    async with dormitory.works():
        await dormitory.sleeps("half", refused=False)
        dormitory.clock.ahead = 2 * RECENT
        await dormitory.refuse("half")
        ready = {"type": "Ready", "status": "True", "reason": "Well", "message": ""}
        status = {"status": {"conditions": [ready]}}
        await dormitory.api.patch(kinds.NODES, NODE, status, subresource="status")
        await asyncio.sleep(2.0)
        assert dormitory.woken == set()


class Disturbed(Sleepers):
    """Another client changes the pod between the two writes of a requeue."""

    def __init__(self, dormitory: Dormitory, interfere: Callable[[], Awaitable[None]]) -> None:
        empty: Any = SimpleNamespace(store=())
        super().__init__(empty, empty, dormitory.api)
        self._interfere = interfere

    async def _status(self, of: ObjectMeta, containers: list[dict[str, Any]]) -> Pod:
        written = await super()._status(of, containers)
        if containers:
            await self._interfere()
        return written


async def test_a_change_between_the_two_writes_is_reverted(dormitory: Dormitory):
    await dormitory.sleeps("half")
    note = {"metadata": {"annotations": {"example.com/note": "changed"}}}

    async def annotated() -> None:
        await dormitory.api.patch(kinds.PODS, "half", note, namespace=dormitory.namespace)

    pod = await dormitory.get("half")
    await Disturbed(dormitory, annotated)._knock(sleeper(pod))

    assert (await dormitory.get("half")).status.container_statuses == ()


async def test_a_status_written_by_a_kubelet_is_never_overwritten(dormitory: Dormitory):
    await dormitory.sleeps("half")
    pod = await dormitory.get("half")

    async def runs() -> None:
        await dormitory.runs("half")

    await Disturbed(dormitory, runs)._knock(sleeper(pod))
    assert [container.ready for container in (await dormitory.get("half")).status.container_statuses] == [
        True
    ]

    with pytest.raises(Conflict):
        await Disturbed(dormitory, runs)._knock(sleeper(pod))
    assert [container.ready for container in (await dormitory.get("half")).status.container_statuses] == [
        True
    ]


def sleeper(pod: Pod) -> Sleeper:
    return Sleeper(pod, {MARK: quantity.parse("1")})
