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

from bench import cost, env, filled_cluster
from bench.cost import Cost
from bench.env import BenchEnv
from croupier.api import kinds
from croupier.api.core_v1 import Pod
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, DeleteOptions, Selection
from croupier.kube.client.errors import AlreadyExists
from croupier_lab import fleet, nodes
from croupier_lab.controlplane import API_SERVER, COMPONENTS, ETCD, SCHEDULER
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan

NAMESPACE = "bench"
POLL = 0.5
TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class BenchCluster:
    lab: Lab
    api: Client

    def processes(self, helpers: Mapping[str, int]) -> dict[str, int]:
        parts = {part: self.lab.process(part).pid for part in (API_SERVER, ETCD, SCHEDULER)}
        return {**parts, **helpers, "bench": os.getpid()}


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """`seconds` from the creation of the first pod until the last pod is bound."""

    pods: list[Pod]
    seconds: float
    account: Cost = field(repr=False)

    @property
    def rate(self) -> float:
        return len(self.pods) / self.seconds


@contextlib.asynccontextmanager
async def raised(on: BenchEnv, count: int) -> AsyncIterator[BenchCluster]:
    plan = LabPlan(parts=COMPONENTS, pods_run=False, extra=fleet.extra_arguments(count))
    async with on.raised(plan) as lab, api_client.connect(config.load(lab.kubeconfig)) as api:
        await env.install_crds(lab)
        await fleet.create(lab, nodes.fleet(count, cards="H100:8", named=()), on.show)
        await api.create(kinds.NAMESPACES.raw, {"metadata": {"name": NAMESPACE}})
        with contextlib.suppress(AlreadyExists):  # the controller manager may be faster
            await api.create(filled_cluster.ACCOUNTS, {"metadata": {"name": "default"}}, namespace=NAMESPACE)
        yield BenchCluster(lab, api)


async def place(
    arena: BenchCluster, helpers: Mapping[str, int], count: int, make: Callable[[int], dict[str, Any]]
) -> PlacementResult:
    """Create `count` pods and wait until they are bound; `helpers` are the pids of Croupier."""
    processes = arena.processes(helpers)
    before = await cost.measure(arena.api, processes)
    began = time.perf_counter()

    async def create(number: int) -> None:
        await arena.api.create(kinds.PODS.raw, make(number), namespace=NAMESPACE)

    await filled_cluster.in_parallel(create, range(count))
    await until_bound(arena.api)
    seconds = time.perf_counter() - began
    spent = (await cost.measure(arena.api, processes)).since(before)
    pods = (await arena.api.list(kinds.PODS, Selection(NAMESPACE))).items
    return PlacementResult(list(pods), seconds, spent)


async def until_bound(api: Client) -> None:
    """Wait until every pod has a node."""
    await until_none(api, Selection(NAMESPACE, fields="spec.nodeName="))


async def clear(arena: BenchCluster) -> None:
    """Delete all pods with one request."""
    all_pods = Selection(NAMESPACE)
    await arena.api.delete_collection(kinds.PODS, all_pods, how=DeleteOptions(grace_seconds=0))
    await until_none(arena.api, all_pods)


async def until_none(api: Client, those: Selection) -> None:
    """Wait until no pod matches. Polls one pod, which is cheaper for the API server than a watch."""
    async with asyncio.timeout(TIMEOUT):
        while (await anext(api.pages(kinds.PODS, those, limit=1))).items:  # noqa: ASYNC110 (see above)
            await asyncio.sleep(POLL)
