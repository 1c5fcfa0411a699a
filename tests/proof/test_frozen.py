"""A process that is frozen at the worst time and resumed later causes no overcommit.

A scheduler may be frozen between its hold and its Binding, and the holder controller between verifying and
releasing a hold, while the other side continues. Only the order of the writes protects the cards
(docs/decisions/0007-an-expiry-fences-its-pod.md).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from croupier.api import kinds
from croupier.extender.protocol import ExtenderBindingArgs
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.controller.events import EventRecorder
from croupier_lab.lab import Lab
from tests.polling import until, until_async
from tests.proof import flow_process as flow_module
from tests.proof import history, manager_env
from tests.proof.flow_env import FlowEnv
from tests.proof.flow_process import POD
from tests.proof.manager_env import LedgerManagerEnv, Scope
from tests.proof.processes import ChildProcess, Start, child_processes

HOLD, BINDING, PROMOTION = 1, 2, 3
FENCE, RELEASE = 1, 2
"""The numbers of the writes of a bind and of an expiry."""


@dataclass
class Scene:
    lab: Lab
    api: Client
    start: Start

    async def world(self, name: str, cards: int = 2) -> FlowEnv:
        made = FlowEnv(self.api, name)
        await made.lay(cards)
        await made.open(cards)
        return made

    async def frozen(self, flow: str, world: FlowEnv, before: int) -> ChildProcess:
        """A flow process that is frozen before the given write."""
        known = [f"--kubeconfig={self.lab.kubeconfig}", f"--node={world.node}"]
        known += [f"--namespace={world.namespace}", f"--number={before}", "--when=freeze"]
        player = await self.start(flow_module.__name__, f"{flow}-{world.name}", flow, *known)
        process = psutil.Process(player.pid)
        await until(lambda: process.status() == psutil.STATUS_STOPPED, f"{flow} to stand still")
        return player

    def house(self, scope: Scope, **how: Any) -> LedgerManagerEnv:
        return LedgerManagerEnv(self.api, EventRecorder(self.api, "proof"), scope, **how)

    @contextlib.asynccontextmanager
    async def extender(self, *worlds: FlowEnv, ttl: float = 2) -> AsyncIterator[LedgerManagerEnv]:
        """Another extender, for one environment or all."""
        made = self.house(_scope(*worlds), ttl=timedelta(seconds=ttl))
        await made.synced()
        try:
            yield made
            await made.binder.drain()
        finally:
            await made.close()


def _scope(*worlds: FlowEnv) -> Scope:
    return Scope(worlds[0].node, worlds[0].namespace) if len(worlds) == 1 else Scope()


async def bind(house: LedgerManagerEnv, holder: str, node: str) -> str:
    namespace, name, uid = holder.split("/")
    return await house.binder.bind(ExtenderBindingArgs(name, namespace, uid, node))


async def ended(world: FlowEnv, how: str) -> None:
    async def look() -> bool:
        return await world.ending() == how

    await until_async(look, f"{world.name} to be {how}")


async def a_late_binding_is_refused_once_its_hold_has_expired(scene: Scene):
    world = await scene.world("late")
    await world.pod()
    frozen = await scene.frozen("bind", world, before=BINDING)
    async with manager_env.running(scene.house(_scope(world))) as awake:
        await ended(world, "free, 2 cards")
        rival = await world.pod("rival")
        assert await bind(awake, rival, world.node) == "", "another pod can get the cards"

        frozen.resume()
        report = await frozen.receive()
        await awake.binder.drain()

    assert "too little capacity left" in report["refused"] or "short" in report["refused"], report
    sheet = await world.sheet()
    assert sheet is not None
    assert set(sheet.grants) == {rival}
    assert not (await scene.api.get(kinds.PODS, POD, namespace=world.namespace)).spec.node_name


async def a_late_binding_gets_other_cards_where_there_are_some(scene: Scene):
    world = await scene.world("late-again", cards=4)
    await world.pod()
    frozen = await scene.frozen("bind", world, before=BINDING)
    async with manager_env.running(scene.house(_scope(world))) as awake:
        await ended(world, "free, 4 cards")
        rival = await world.pod("rival")
        assert await bind(awake, rival, world.node) == ""

        frozen.resume()
        assert (await frozen.receive())["refused"] == ""
        await awake.binder.drain()

    sheet = await world.sheet()
    assert sheet is not None
    assert len(sheet.grants) == 2


async def a_frozen_expiry_does_not_release_a_pod_that_was_bound(scene: Scene):
    """The pod is fenced but not released yet: a new bind uses the old hold."""
    world = await scene.world("woken")
    holder = await world.pod()
    await world.hold(holder, -1)
    expirer = await scene.frozen("expire", world, before=RELEASE)
    async with scene.extender(world, ttl=60) as extender:
        assert await bind(extender, holder, world.node) == ""
        expirer.resume()
        await expirer.receive()

    await ended(world, "bound")


async def an_expiry_that_was_frozen_before_its_fence_reads_again(scene: Scene):
    world = await scene.world("unfenced")
    holder = await world.pod()
    await world.hold(holder, -1)
    expirer = await scene.frozen("expire", world, before=FENCE)
    async with scene.extender(world, ttl=60) as extender:
        assert await bind(extender, holder, world.node) == ""
        expirer.resume()
        await expirer.receive()

    await ended(world, "bound")


async def the_same_bind_in_another_extender(scene: Scene, before: int):
    world = await scene.world(f"twice-{before}")
    holder = await world.pod()
    frozen = await scene.frozen("bind", world, before=before)
    async with scene.extender(world) as extender:
        twice = await asyncio.gather(*(bind(extender, holder, world.node) for _ in range(2)))
        assert twice == ["", ""]
        assert await bind(extender, holder, world.node) == "", "and again later"
        frozen.resume()
        assert (await frozen.receive())["refused"] == ""

    await ended(world, "bound")


async def the_pod_is_bound_to_another_node(scene: Scene):
    here, there = await scene.world("here"), await scene.world("there")
    holder = await here.pod()
    frozen = await scene.frozen("bind", here, before=BINDING)
    async with scene.extender() as extender:
        assert await bind(extender, holder, there.node) == ""
        frozen.resume()
        report = await frozen.receive()

    assert "is already bound to there" in report["refused"]
    ledgers = [await env.sheet() for env in (here, there)]
    assert [set(sheet.grants) for sheet in ledgers if sheet] == [set(), {holder}]


async def the_pod_is_replaced_by_a_pod_of_the_same_name(scene: Scene):
    world = await scene.world("namesake")
    await world.pod()
    frozen = await scene.frozen("bind", world, before=BINDING)
    await world.remove_pod()
    successor = await world.pod()

    frozen.resume()
    report = await frozen.receive()

    assert "was replaced by a pod with UID" in report["refused"]
    assert await world.ending() == "free, 2 cards"
    async with scene.extender(world) as extender:
        assert await bind(extender, successor, world.node) == ""


async def the_pod_is_deleted(scene: Scene):
    world = await scene.world("deleted")
    await world.pod()
    frozen = await scene.frozen("bind", world, before=BINDING)
    await world.remove_pod()

    frozen.resume()
    report = await frozen.receive()

    assert "is gone" in report["refused"]
    assert await world.ending() == "free, 2 cards"


STORIES: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    "a late binding is refused": a_late_binding_is_refused_once_its_hold_has_expired,
    "a late binding gets other cards": a_late_binding_gets_other_cards_where_there_are_some,
    "an expiry frozen before its release": (a_frozen_expiry_does_not_release_a_pod_that_was_bound),
    "an expiry frozen before its fence": an_expiry_that_was_frozen_before_its_fence_reads_again,
    "the same bind elsewhere, frozen before the hold": partial(
        the_same_bind_in_another_extender, before=HOLD
    ),
    "the same bind elsewhere, frozen before the Binding": partial(
        the_same_bind_in_another_extender, before=BINDING
    ),
    "the same bind elsewhere, frozen before the promotion": partial(
        the_same_bind_in_another_extender, before=PROMOTION
    ),
    "the pod is bound to another node": the_pod_is_bound_to_another_node,
    "the pod was replaced": the_pod_is_replaced_by_a_pod_of_the_same_name,
    "the pod was deleted": the_pod_is_deleted,
}


async def test_frozen_processes_cause_no_overcommit(private_lab, tell, tmp_path: Path):
    """All cases concurrently on one API server, each in its own environment."""
    lab = await private_lab(crds=True)
    turns = asyncio.Semaphore(4)
    async with (
        api_client.connect(config.load(lab.kubeconfig)) as api,
        history.record(api, pods=True) as recording,
        child_processes(tmp_path) as start,
    ):
        scene = Scene(lab, api, start)

        async def run(story: Callable[[Scene], Awaitable[None]]) -> None:
            async with turns:
                await story(scene)

        endings = await asyncio.gather(*map(run, STORIES.values()), return_exceptions=True)
        await recording.complete()
    failed = {name: end for name, end in zip(STORIES, endings, strict=True) if end is not None}
    tell(f"Frozen processes: {len(STORIES) - len(failed)} of {len(STORIES)} cases passed")
    assert failed == {}
    assert recording.faults() == []
