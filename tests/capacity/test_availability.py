"""The index follows a real API server through thousands of changes and always equals a recount."""

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Iterable
from itertools import chain
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds, pod_requests
from croupier.api.core_v1 import Node, Pod
from croupier.api.pod_requests import LEAN_NODES, LEAN_PODS, LeanNode, LeanPod
from croupier.capacity import availability
from croupier.capacity.snapshot import BOUND
from croupier.core import quantity
from croupier.core.availability import Availability, ResourceAmounts
from croupier.core.quantity import ZERO, Quantity
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import EVERYTHING, Client, Selection
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Resource
from tests import polling
from tests.capacity.load import ACTIONS, ClusterLoad, offer, workload

ROUNDS, STEPS = 4, 24
"""Rounds, and steps of every worker between two comparisons with the API server."""
EVERY = 40
"""Notifications between two comparisons with the stores."""

Table = dict[str, dict[str, ResourceAmounts]]


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as connected:
        yield connected


def recount(nodes: Iterable[Node | LeanNode], pods: Iterable[Pod | LeanPod]) -> Table:
    """A recount of all pods for every node."""
    asked: dict[str, dict[str, Quantity]] = {}
    for pod in pods:
        if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
            sums = asked.setdefault(pod.spec.node_name, {})
            for name, amount in pod_requests.requests(pod).items():
                sums[name] = sums.get(name, ZERO) + amount
    return {node.metadata.name: _numbers(node, asked.get(node.metadata.name, {})) for node in nodes}


def _numbers(node: Node | LeanNode, asked: dict[str, Quantity]) -> dict[str, ResourceAmounts]:
    capacity, allocatable = node.status.capacity, node.status.allocatable
    return {
        name: ResourceAmounts.of(
            quantity.parse(capacity.get(name, "0")),
            quantity.parse(allocatable.get(name, "0")),
            asked.get(name, ZERO),
        )
        for name in {*capacity, *allocatable, *asked}
    }


@contextlib.asynccontextmanager
async def following(
    api: Client, nodes: Resource[Any], pods: Resource[Any], selection: Selection = EVERYTHING
) -> AsyncIterator[tuple[Availability, Store[Any], Store[Any]]]:
    """An index that follows two reflectors from the start."""
    stores = Store(nodes), Store(pods)
    index = availability.maintain(*stores)
    reading = [Reflector(api, stores[0]), Reflector(api, stores[1], selection=selection)]
    tasks = [asyncio.create_task(reflector.run()) for reflector in reading]
    try:
        for reflector in reading:
            await reflector.synced()
        yield index, *stores
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def check_on_the_way(index: Availability, nodes: Store[Any], pods: Store[Any]) -> list[bool]:
    """Compare the index with a recount of the stores after every `EVERY` notifications."""
    results: list[bool] = []
    notifications = 0

    def look(_: object) -> None:
        nonlocal notifications
        notifications += 1
        if notifications % EVERY == 0:
            results.append(index.snapshot() == recount(nodes, pods))

    nodes.subscribe(look)
    pods.subscribe(look)
    return results


async def test_thousands_of_random_events(api, namespace, clean_cluster):
    """One index follows all pods, the other only bound and unfinished ones."""
    traffic = ClusterLoad(api, namespace, seed=2026)
    async with (
        following(api, LEAN_NODES, LEAN_PODS) as (index, nodes, pods),
        following(api, kinds.NODES, kinds.PODS, BOUND) as (bound_only, _, _),
    ):
        on_the_way = check_on_the_way(index, nodes, pods)
        for round_ in range(ROUNDS):
            await traffic.flow(STEPS + round_)
            await caught_up(api, index, bound_only)

    assert all(on_the_way)
    assert len(on_the_way) > 20
    assert traffic.done.total() > 2000, traffic.refused
    assert min(traffic.done[act] for act in chain.from_iterable(ACTIONS.values())) > 50, traffic.refused
    assert min(traffic.done[act] for act in ("open", "renew", "close")) > 10, traffic.refused


async def caught_up(api: Client, *indexes: Availability) -> None:
    """Without further writes each index becomes equal to a recount of a fresh list."""

    async def same() -> bool:
        nodes, pods = await asyncio.gather(api.list(kinds.NODES), api.list(kinds.PODS))
        counted = recount(nodes.items, pods.items)
        return all(index.snapshot() == counted for index in indexes)

    await polling.until_async(same, "the index to equal a recount by list")


async def test_kubectl_describe_shows_the_same_amounts(api, namespace, clean_cluster, cluster):
    chance = random.Random(2026)  # noqa: S311  # not a secret: reproducible
    async with runtime_with_overhead(api) as runtime:
        await api.create(kinds.NODES, {"metadata": {"name": "gpu-worker2"}, "status": offer(chance)})
        async with asyncio.TaskGroup() as creating:
            for number in range(24):
                spec = workload(chance) | {"nodeName": "gpu-worker2"}
                spec |= {"runtimeClassName": runtime} if number % 3 == 0 else {}
                body = {"metadata": {"name": f"p-{number}"}, "spec": spec}
                creating.create_task(api.create(kinds.PODS, body, namespace=namespace))
        for number, phase in ((2, "Succeeded"), (5, "Failed"), (7, "Running")):
            status = {"status": {"phase": phase}}
            await api.patch(kinds.PODS, f"p-{number}", status, namespace=namespace, subresource="status")

        ours = (await availability.count_node(api, "gpu-worker2")).node("gpu-worker2")
        theirs = allocated(cluster.kubectl("describe", "node", "gpu-worker2").stdout)

    assert {name: str(amount) for name, amount in theirs.items()} == {
        name: str(ours[name].allocated) for name in theirs
    }
    assert theirs.keys() == ours.keys()
    assert theirs["pods"] == quantity.parse("22")
    assert (await availability.count_cluster(api)).node("gpu-worker2") == ours


def allocated(described: str) -> dict[str, Quantity]:
    """The requests column of "Allocated resources", and the number of pods."""
    (pods,) = re.findall(r"Non-terminated Pods:\s+\((\d+) in total\)", described)
    table = described.partition("Allocated resources:")[2].partition("Events:")[0]
    rows = re.findall(r"^  (\S+)\s+(-?[0-9]\S*)\s", table, re.MULTILINE)
    return {name: quantity.parse(text) for name, text in rows} | {"pods": quantity.parse(pods)}


@contextlib.asynccontextmanager
async def runtime_with_overhead(api: Client) -> AsyncIterator[str]:
    """A RuntimeClass with overhead."""
    classes: Resource[Any] = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, dict)
    overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
    body = {"metadata": {"name": "heavy-availability"}, "handler": "heavy", "overhead": overhead}
    await api.create(classes, body)
    try:
        yield "heavy-availability"
    finally:
        await api.delete(classes, "heavy-availability")


async def test_an_unknown_node_is_not_found(api, namespace):
    with pytest.raises(NotFound, match="no-such-node"):
        await availability.count_node(api, "no-such-node")
