"""A lab filled with Nodes and Pods."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import objects
from bench.env import BenchEnv
from croupier.api import kinds
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, PatchType
from croupier.kube.client.resource import Raw, Resource
from croupier_lab.controlplane import API_COMPONENTS
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan
from croupier_lab.progress import ProgressReporter

NODES, PODS, NAMESPACES = kinds.NODES.raw, kinds.PODS.raw, kinds.NAMESPACES.raw
ACCOUNTS: Resource[Raw] = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict)

CONCURRENCY = 48
"""Concurrent writes; enough to saturate the API server."""


@dataclass(frozen=True, slots=True)
class ClusterSizes:
    nodes: int
    pods: int
    events: int


FULL = ClusterSizes(nodes=5_000, pods=20_000, events=4_000)
QUICK = ClusterSizes(nodes=20, pods=60, events=30)


@dataclass(frozen=True, slots=True)
class FilledCluster:
    """A cluster with `sizes` objects; `quick` allows rough measurements."""

    lab: Lab
    api: Client
    sizes: ClusterSizes
    quick: bool

    @property
    def kubeconfig(self) -> Path:
        return self.lab.kubeconfig


@asynccontextmanager
async def raised(ground: BenchEnv, sizes: ClusterSizes) -> AsyncIterator[FilledCluster]:
    async with (
        ground.raised(LabPlan(parts=API_COMPONENTS)) as lab,
        api_client.connect(config.load(lab.kubeconfig)) as api,
    ):
        await fill(api, sizes, ground.show)
        yield FilledCluster(lab, api, sizes, ground.quick)


async def fill(api: Client, sizes: ClusterSizes, show: ProgressReporter) -> None:
    for space in objects.NAMESPACES:
        await api.create(NAMESPACES, {"metadata": {"name": space}})
        await api.create(ACCOUNTS, {"metadata": {"name": "default"}}, namespace=space)
    nodes = _with_progress(show, "Creating nodes", sizes.nodes)
    await in_parallel(lambda number: _node(api, number), nodes)
    pods = _with_progress(show, "Creating pods", sizes.pods)
    await in_parallel(lambda number: _pod(api, number, sizes.nodes), pods)
    show.settle()


def _with_progress(show: ProgressReporter, what: str, total: int) -> Iterator[int]:
    """The numbers below `total`, with progress output."""
    for number in range(total):
        if number % 50 == 0:
            show.advance(what, number, total)
        yield number


async def touch(api: Client, sizes: ClusterSizes, *, mark: str) -> None:
    """Modify pods `sizes.events` times. `mark` must be unique, so that every patch is a change."""

    async def label(number: int) -> None:
        pod, space = objects.pod(number % sizes.pods, sizes.nodes), namespace_of(number % sizes.pods)
        patch = {"metadata": {"labels": {"touched": f"{mark}-{number}"}}}
        await api.patch(PODS, pod["metadata"]["name"], patch, namespace=space)

    await in_parallel(label, range(sizes.events))


async def in_parallel(work: Callable[[int], Awaitable[None]], numbers: Iterable[int]) -> None:
    waiting = iter(numbers)

    async def worker() -> None:
        for number in waiting:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(worker())


def namespace_of(number: int) -> str:
    return objects.NAMESPACES[number % len(objects.NAMESPACES)]


async def _node(api: Client, number: int) -> None:
    body = objects.node(number)
    await api.create(NODES, body)
    name, status = body["metadata"]["name"], objects.node_status(number)
    await api.with_field_manager("kubelet").patch(NODES, name, status, subresource="status")


async def _pod(api: Client, number: int, nodes: int) -> None:
    body, space = objects.pod(number, nodes), namespace_of(number)
    await api.create(PODS, body, namespace=space)
    name, status = body["metadata"]["name"], objects.pod_status(number)
    await api.with_field_manager("kubelet").patch(
        PODS, name, status, namespace=space, subresource="status", patch_type=PatchType.STRATEGIC
    )
