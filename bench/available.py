"""Cost of availability queries: with the index, and by recounting.

On the shared cluster, recounting means listing all objects. With more pods than that cluster has, both
variants have all decoded objects in memory, and recounting means summing up.
"""

from collections.abc import Mapping

from bench import subject_process
from bench.figures import OURS, Figure
from bench.filled_cluster import ClusterSizes, FilledCluster

FULL = ClusterSizes(nodes=5_000, pods=100_000, events=0)
QUICK = ClusterSizes(nodes=50, pods=500, events=0)

RECOUNT = "recount of the same objects in memory"
LIST = "list and sum, our types"
JSON = "list and sum, plain json"
STORE = "a store without the index"


async def asking(on: FilledCluster) -> list[Figure]:
    more = QUICK if on.quick else FULL
    async with subject_process.started("available", on.kubeconfig, more.nodes, more.pods) as running:
        listed, memory = await running.hear(), await running.hear()
    return [*_in_memory(more, memory), *_on_the_cluster(on.sizes, listed)]


def _in_memory(size: ClusterSizes, took: Mapping[str, float]) -> list[Figure]:
    here = f"{size.nodes:,} nodes, {size.pods:,} pods"
    every, one = took["recounted every"], took["recounted node"]
    return [
        _figure(f"every node and resource, {here}", took["every"], {RECOUNT: every}),
        _figure(f"the same, and every number read, {here}", took["every read"], {RECOUNT: every}),
        _figure(f"all resources of one node, {here}", took["node"], {RECOUNT: one}),
        _figure(f"one resource of one node, {here}", took["three"], {RECOUNT: one}),
        _figure(f"one resource of all nodes, {here}", took["total"], {RECOUNT: every}),
        _figure(
            f"the maximum free on one node, including two changes, {here}",
            took["most free"],
            {RECOUNT: every},
        ),
        _figure(f"whether a resource exists, {here}", took["exists"], {}),
        *(_event(what, took) for what in ("touched", "come", "gone")),
    ]


def _event(what: str, took: Mapping[str, float]) -> Figure:
    events = {"touched": "changes without effect", "come": "is bound", "gone": "is deleted"}
    title = f"an event: a decoded pod {events[what]}, with {OURS}'s index"
    return _figure(title, took[f"followed {what}"], {STORE: took[f"alone {what}"]})


def _on_the_cluster(size: ClusterSizes, took: Mapping[str, float]) -> list[Figure]:
    here = f"{size.nodes:,} nodes, {size.pods:,} pods, API server"
    lists = {LIST: took["listed every"], JSON: took["plain json every"]}
    return [
        _figure(f"every node and resource, {here}", took["every"], lists),
        _figure(f"all resources of one node, {here}", took["node"], {LIST: took["listed node"]}),
    ]


def _figure(what: str, ours: float, others: Mapping[str, float]) -> Figure:
    seconds = {OURS: ours, **others}
    return Figure("available", what, "µs", {who: taken * 1e6 for who, taken in seconds.items()})
