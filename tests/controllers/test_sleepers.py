"""Pods that the scheduler lets sleep although a node has come by what they wait for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest_asyncio

from croupier.api import kinds
from croupier.api.mps.allocation import LOOK_AGAIN, MARK
from croupier.controllers.ledger.sleepers import RECENT, Sleepers
from croupier.kube import client, config
from croupier.kube.client import Client, Selection
from tests.controllers.world import running, watched
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

    async def node_has(self, pool: str = "") -> None:
        amounts = {**HAS, **({POOL: pool} if pool else {})}
        status = {"status": {"allocatable": amounts, "capacity": amounts}}
        await self.api.patch(kinds.NODES, NODE, status, subresource="status")

    async def sleeps(self, name: str, *, marked: bool = True, refused: bool = True, pool: str = "50") -> None:
        asked = {POOL: pool, **({MARK: "1"} if marked else {})}
        container = {"name": "main", "image": "any", "resources": {"limits": asked}}
        body = {"metadata": {"name": name}, "spec": {"schedulerName": "nobody", "containers": [container]}}
        await self.api.create(kinds.PODS, body, namespace=self.namespace)
        if refused:
            await self.refuse(name)

    async def refuse(self, name: str) -> None:
        status = {"status": {"conditions": [REFUSED]}}
        await self.api.patch(kinds.PODS, name, status, namespace=self.namespace, subresource="status")

    async def woken(self) -> set[str]:
        found = await self.api.list(kinds.PODS, Selection(self.namespace))
        return {one.metadata.name for one in found.items if LOOK_AGAIN in one.metadata.annotations}

    async def until_woken(self, *names: str) -> None:
        async def look() -> bool:
            return await self.woken() >= set(names)

        await until_async(look, f"{names} to be woken", 30.0)

    @contextlib.asynccontextmanager
    async def works(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            pending = await stack.enter_async_context(
                watched(self.api, kinds.PODS, Selection(self.namespace, fields="spec.nodeName="))
            )
            here = Selection(fields=f"metadata.name={NODE}")
            nodes = await stack.enter_async_context(watched(self.api, kinds.NODES, here))
            await stack.enter_async_context(
                running(Sleepers(pending, nodes, self.api, self.clock).run(asyncio.Event()))
            )
            yield


@pytest_asyncio.fixture
async def dormitory(cluster: Any, clean_cluster: None, namespace: str) -> AsyncIterator[Dormitory]:
    async with client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        await api.create(kinds.NODES, {"metadata": {"name": NODE}})
        made = Dormitory(api, namespace)
        await made.node_has()
        yield made


async def test_whoever_waits_for_what_a_node_came_by_is_woken_and_nobody_else(dormitory: Dormitory):
    await dormitory.sleeps("half")
    await dormitory.sleeps("too-much", pool="200")
    await dormitory.sleeps("not-ours", marked=False)
    await dormitory.sleeps("not-refused", refused=False)
    async with dormitory.works():
        await asyncio.sleep(1.5)
        assert await dormitory.woken() == set(), "a node that has nothing for them is nothing to wake for"

        await dormitory.node_has(pool="100")
        await dormitory.until_woken("half")

        await dormitory.refuse("not-refused")  # it asked a moment too early, and we hear of it after
        await dormitory.until_woken("not-refused")
    assert await dormitory.woken() == {"half", "not-refused"}


async def test_whoever_comes_to_office_wakes_those_who_were_overlooked(dormitory: Dormitory):
    await dormitory.sleeps("half")
    await dormitory.node_has(pool="100")
    async with dormitory.works():
        await dormitory.until_woken("half")


async def test_a_node_that_only_gives_a_sign_of_life_wakes_nobody(dormitory: Dormitory):
    await dormitory.node_has(pool="100")
    async with dormitory.works():
        await dormitory.sleeps("half", refused=False)
        dormitory.clock.ahead = 2 * RECENT
        await dormitory.refuse("half")
        ready = {"type": "Ready", "status": "True", "reason": "Well", "message": ""}
        status = {"status": {"conditions": [ready]}}
        await dormitory.api.patch(kinds.NODES, NODE, status, subresource="status")
        await asyncio.sleep(2.0)
        assert await dormitory.woken() == set()
