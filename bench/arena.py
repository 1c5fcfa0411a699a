"""The cluster of the placement benchmarks: simulated nodes with cards and kube-scheduler.

KWOK simulates the nodes but not the pods, so that only the placement is measured.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench import accounts, ground, world
from bench.accounts import Account
from bench.ground import Ground
from croupier.api import kinds
from croupier.api.core_v1 import Pod
from croupier.kube import client, config
from croupier.kube.client import Client, Deletion, Selection
from croupier.kube.errors import AlreadyExists
from croupier.lab import fleet, nodes
from croupier.lab.controlplane import API_SERVER, ETCD, PARTS, SCHEDULER
from croupier.lab.lab import Lab
from croupier.lab.lifecycle import Plan

SPACE = "bench"
POLL = 0.5
PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Arena:
    lab: Lab
    api: Client

    def processes(self, helpers: Mapping[str, int]) -> dict[str, int]:
        parts = {part: self.lab.process(part).pid for part in (API_SERVER, ETCD, SCHEDULER)}
        return {**parts, **helpers, "bench": os.getpid()}


@dataclass(frozen=True, slots=True)
class Placed:
    """`seconds` from the creation of the first pod until the last pod is bound."""

    pods: list[Pod]
    seconds: float
    account: Account = field(repr=False)

    @property
    def rate(self) -> float:
        return len(self.pods) / self.seconds


@contextlib.asynccontextmanager
async def raised(on: Ground, count: int) -> AsyncIterator[Arena]:
    plan = Plan(parts=PARTS, pods_run=False, extra=fleet.settings(count))
    async with on.raised(plan) as lab, client.connect(config.load(lab.kubeconfig)) as api:
        await ground.install_kinds(lab)
        await fleet.create(lab, nodes.fleet(count, cards="H100:8", named=()), on.show)
        await api.create(kinds.NAMESPACES.raw, {"metadata": {"name": SPACE}})
        with contextlib.suppress(AlreadyExists):  # the controller manager may be faster
            await api.create(world.ACCOUNTS, {"metadata": {"name": "default"}}, namespace=SPACE)
        yield Arena(lab, api)


async def place(
    arena: Arena, helpers: Mapping[str, int], count: int, make: Callable[[int], dict[str, Any]]
) -> Placed:
    """Create `count` pods and wait until they are bound; `helpers` are the pids of Croupier."""
    processes = arena.processes(helpers)
    before = await accounts.taken(arena.api, processes)
    began = time.perf_counter()

    async def create(number: int) -> None:
        await arena.api.create(kinds.PODS.raw, make(number), namespace=SPACE)

    await world.in_parallel(create, range(count))
    await until_bound(arena.api)
    seconds = time.perf_counter() - began
    spent = (await accounts.taken(arena.api, processes)).since(before)
    pods = (await arena.api.list(kinds.PODS, Selection(SPACE))).items
    return Placed(list(pods), seconds, spent)


async def until_bound(api: Client) -> None:
    """Wait until every pod has a node."""
    await until_none(api, Selection(SPACE, fields="spec.nodeName="))


async def clear(arena: Arena) -> None:
    """Delete all pods with one request."""
    all_pods = Selection(SPACE)
    await arena.api.delete_collection(kinds.PODS, all_pods, how=Deletion(grace_seconds=0))
    await until_none(arena.api, all_pods)


async def until_none(api: Client, those: Selection) -> None:
    """Wait until no pod matches. Polls one pod, which is cheaper for the API server than a watch."""
    async with asyncio.timeout(PATIENCE):
        while (await anext(api.pages(kinds.PODS, those, limit=1))).items:  # noqa: ASYNC110 (see above)
            await asyncio.sleep(POLL)
