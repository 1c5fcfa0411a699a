"""Cost of availability queries: with the index, and by recounting.

First on the cluster, where recounting means listing; then on many more decoded objects in memory. Both
variants must give the same numbers.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench import objects
from bench.subjects.meter import report
from bench.subjects.plain_json import listed
from croupier.api import pod_requests
from croupier.api.pod_requests import LEAN_NODES, LEAN_PODS, LeanNode, LeanPod
from croupier.capacity import availability
from croupier.core import quantity
from croupier.core.availability import Availability, NodeAmounts, ResourceAmounts
from croupier.core.quantity import ZERO, Quantity
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.identity import Key

GPU = "nvidia.com/gpu"
ROUNDS, BATCH, RECOUNTS, EVENTS = 15, 20, 3, 20_000

Sums = dict[str, dict[str, Quantity]]
Table = dict[str, dict[str, ResourceAmounts]]


async def main(kubeconfig: Path, nodes: int, pods: int) -> None:
    async with api_client.connect(config.load(kubeconfig)) as api:
        report(**await on_the_cluster(api))
    report(**in_memory(nodes, pods))


async def on_the_cluster(api: Client) -> dict[str, float]:
    nodes, pods = Store(LEAN_NODES), Store(LEAN_PODS)
    index = availability.maintain(nodes, pods)
    reading: list[Reflector[Any]] = [Reflector(api, nodes), Reflector(api, pods)]
    tasks = [asyncio.create_task(one.run()) for one in reading]
    for one in reading:
        await one.synced()
    found = {"every": taken(index.snapshot), "node": taken(lambda: index.node("gpu-worker-0"))}
    began = time.perf_counter()
    listed = await availability.count_cluster(api)
    found["listed every"] = time.perf_counter() - began
    began = time.perf_counter()
    await availability.count_node(api, "gpu-worker-0")
    found["listed node"] = time.perf_counter() - began
    began = time.perf_counter()
    plain = await by_plain_json(api)
    found["plain json every"] = time.perf_counter() - began
    for task in tasks:
        task.cancel()
    agree(index.snapshot(), listed.snapshot(), plain)
    return found


async def by_plain_json(api: Client) -> Table:
    """Without an index: list all nodes and pods as dicts and sum the container requests."""
    nodes, pods = await listed(api, "/api/v1/nodes"), await listed(api, "/api/v1/pods")
    sums: Sums = {}
    for pod in pods:
        if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            asked = sums.setdefault(pod["spec"]["nodeName"], {})
            for container in pod["spec"]["containers"]:
                requests = container["resources"]["requests"]
                add(asked, {name: quantity.parse(text) for name, text in requests.items()})
            add(asked, {"pods": Quantity(quantity.NANO)})
    return table(((one["metadata"]["name"], one["status"]) for one in nodes), sums)


def in_memory(nodes: int, pods: int) -> dict[str, float]:
    """Both variants have all decoded objects in memory."""
    held, bound = Store(LEAN_NODES), Store(LEAN_PODS)
    for number in range(nodes):
        held.put(node(number))
    for number in range(pods):
        bound.put(pod(number, nodes))
    index = availability.maintain(held, bound)
    gc.freeze()
    agree(index.snapshot(), recount(held, bound))
    found = {
        "every": taken(index.snapshot),
        "every read": taken(lambda: read(index.snapshot())),
        "node": taken(lambda: index.node("gpu-worker-0")),
        "three": taken(lambda: index.three("gpu-worker-0", GPU)),
        "total": taken(lambda: index.total(GPU)),
        "most free": taken(lambda: asked_after_a_change(index, bound)),
        "exists": taken(lambda: index.exists(GPU)),
        "recounted every": recounted(lambda: recount(held, bound)),
        "recounted node": recounted(lambda: recount_node(held, bound, "gpu-worker-0")),
    }
    found |= events(bound, pods, nodes)
    agree(index.snapshot(), recount(held, bound))
    return found


def events(bound: Store[LeanPod], pods: int, nodes: int) -> dict[str, float]:
    """Put changes into a store with the index, and into one without."""
    alone = Store(LEAN_PODS)
    for one in bound:
        alone.put(one)
    count = min(pods, EVENTS)
    touched = [pod(number, nodes, version="2") for number in range(count)]
    took: dict[str, float] = {}
    for who, store in (("followed", bound), ("alone", alone)):
        took[f"{who} touched"] = spent(partial(put, store, touched)) / count
        took[f"{who} gone"] = spent(partial(remove, store, touched)) / count
        took[f"{who} come"] = spent(partial(put, store, touched)) / count
    return took


def recount(nodes: Iterable[LeanNode], pods: Iterable[LeanPod]) -> Table:
    """Recount all pods, with the same computation of effective requests as the index."""
    sums: Sums = {}
    for one in pods:
        if (found := pod_requests.occupant(one)) is not None:
            add(sums.setdefault(found.node, {}), found.requests)
    return table(((one.metadata.name, msgspec.to_builtins(one.status)) for one in nodes), sums)


def recount_node(nodes: Store[LeanNode], pods: Iterable[LeanPod], name: str) -> Table:
    """Recount one node; this still scans every pod."""
    there = nodes.named(name)
    return recount([there] if there is not None else [], (one for one in pods if one.spec.node_name == name))


def table(nodes: Iterable[tuple[str, dict[str, dict[str, str]]]], sums: Sums) -> Table:
    return {name: account(status, sums.get(name, {})) for name, status in nodes}


def account(status: dict[str, dict[str, str]], asked: Mapping[str, Quantity]) -> dict[str, ResourceAmounts]:
    capacity, allocatable = status["capacity"], status["allocatable"]
    return {
        name: ResourceAmounts.of(
            quantity.parse(capacity.get(name, "0")),
            quantity.parse(allocatable.get(name, "0")),
            asked.get(name, ZERO),
        )
        for name in {**capacity, **allocatable, **asked}
    }


def add(sums: dict[str, Quantity], more: Mapping[str, Quantity]) -> None:
    for name, amount in more.items():
        sums[name] = sums[name] + amount if name in sums else amount


def asked_after_a_change(index: Availability, bound: Iterable[LeanPod]) -> Quantity:
    """Query after one pod was removed and added, so that no cached result is used."""
    found = pod_requests.occupant(next(iter(bound)))
    if found is not None:
        index.drop_pod(found.uid)
        index.set_pod(found)
    return index.max_free(GPU)


def read(snapshot: Mapping[str, NodeAmounts]) -> int:
    """Read every number of every node."""
    return sum(three.available.nanos for account in snapshot.values() for three in account.values())


def agree(*tables: Mapping[str, Mapping[str, ResourceAmounts]]) -> None:
    if any(one != tables[0] for one in tables):
        raise SystemExit("the index and the recount differ")


def taken(ask: Callable[[], object], *, times: int = ROUNDS, batch: int = BATCH) -> float:
    """Median CPU seconds of one query; queries are batched because of the clock resolution."""

    def asked() -> None:
        for _ in range(batch):
            ask()

    return median(spent(asked) for _ in range(times)) / batch


def recounted(count: Callable[[], object]) -> float:
    return taken(count, times=RECOUNTS, batch=1)


def spent(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def node(number: int) -> LeanNode:
    body = {**objects.node(number), **objects.node_status(number)}
    body["metadata"] |= {"uid": f"node-{number}", "resourceVersion": "1"}
    return msgspec.convert(body, LeanNode)


def pod(number: int, nodes: int, version: str = "1") -> LeanPod:
    """A pod with the resource status that kubelets report for in-place resize."""
    body = {**objects.pod(number, nodes), **objects.pod_status(number)}
    body["metadata"] |= {"namespace": "bench", "uid": f"pod-{number}", "resourceVersion": version}
    for said, asks in zip(body["status"]["containerStatuses"], body["spec"]["containers"], strict=True):
        said |= {"resources": asks["resources"], "allocatedResources": asks["resources"]["requests"]}
    return msgspec.json.decode(msgspec.json.encode(body), type=LeanPod)


def put(store: Store[LeanPod], pods: Iterable[LeanPod]) -> None:
    for one in pods:
        store.put(one)


def remove(store: Store[LeanPod], pods: Iterable[LeanPod]) -> None:
    for one in pods:
        store.remove(key(one))


def key(one: LeanPod) -> Key:
    return Key(one.metadata.namespace, one.metadata.name)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
