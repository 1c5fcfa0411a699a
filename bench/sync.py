"""Initial sync, memory and cost of an event, compared with kopf and plain JSON."""

from typing import Any

from bench import filled_cluster, subject_process
from bench.figures import OURS, Figure
from bench.filled_cluster import FilledCluster

KOPF, JSON = "kopf", "plain json"


async def first_sync(on: FilledCluster) -> list[Figure]:
    """Sync every Node and Pod, then process modifications."""
    synced: dict[str, dict[str, Any]] = {}
    events: dict[str, dict[str, Any]] = {}
    total = on.sizes.nodes + on.sizes.pods
    for who, module in ((OURS, "ours"), (KOPF, "operator_framework")):
        async with subject_process.started(module, on.kubeconfig, total) as running:
            synced[who] = await running.hear()
            await running.tell(str(on.sizes.events))
            await running.hear()
            await filled_cluster.touch(on.api, on.sizes, mark=who)
            events[who] = await running.hear()
    async with subject_process.started("plain_json", on.kubeconfig) as running:
        synced[JSON] = await running.hear()
    for who, said in synced.items():
        if said["objects"] != total:
            raise RuntimeError(f"{who} saw {said['objects']} of {total} objects")
    return _sync_figures(on, synced) + _event_figures(events)


def _sync_figures(on: FilledCluster, synced: dict[str, dict[str, Any]]) -> list[Figure]:
    title = f"first sync of {on.sizes.nodes:,} nodes and {on.sizes.pods:,} pods"
    total = on.sizes.nodes + on.sizes.pods
    return [
        Figure("sync", f"{title}, CPU", "s", {who: said["cpu"] for who, said in synced.items()}),
        Figure("sync", f"{title}, wall clock", "s", {who: said["wall"] for who, said in synced.items()}),
        Figure("sync", f"{title}, memory", "MiB", {who: said["memory"] for who, said in synced.items()}),
        Figure(
            "sync",
            "memory an object",
            "KiB",
            {who: said["memory"] * 1024 / total for who, said in synced.items()},
        ),
    ]


def _event_figures(events: dict[str, dict[str, Any]]) -> list[Figure]:
    costs = {who: said["cpu"] / said["events"] * 1e6 for who, said in events.items()}
    return [Figure("sync", "CPU per single watch event, over TLS", "µs", costs)]


async def burst(on: FilledCluster) -> list[Figure]:
    """Process a backlog of events, which the API server sends without delay."""
    async with subject_process.started("burst", on.kubeconfig, on.sizes.events) as running:
        await running.hear()
        await filled_cluster.touch(on.api, on.sizes, mark="burst")
        await running.tell("go")
        said = await running.hear()
    return [
        Figure("burst", "events a second absorbed over TLS", "/s", {OURS: said["events"] / said["wall"]}),
        Figure(
            "burst", "CPU an event of a burst, over TLS", "µs", {OURS: said["cpu"] / said["events"] * 1e6}
        ),
    ]


async def absorption(on: FilledCluster) -> list[Figure]:
    """Throughput of the store without network."""
    async with subject_process.started("absorb", on.kubeconfig, on.sizes.events * 5) as running:
        said = await running.hear()
    return [
        Figure("store", "events a second the store absorbs", "/s", {OURS: said["events"] / said["cpu"]}),
        Figure("store", "CPU an event without network", "µs", {OURS: said["cpu"] / said["events"] * 1e6}),
        Figure("store", "size of a pod on the wire", "KiB", {OURS: said["bytes"] / 1024}),
    ]
