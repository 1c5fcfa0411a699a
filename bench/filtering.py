"""Latency of the extender's filter over HTTP, with all node names in the request.

The ledger changes between two requests, as after a bind, so that no cached ranking is used. The latency
must not grow with the number of running pods.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import aiohttp
import msgspec

from bench import objects, subject_process
from bench.env import BenchEnv
from bench.figures import OURS, Figure
from bench.subject_process import SubjectProcess
from bench.subjects.filtering import Task
from croupier.api.mps.allocation import CARDS, MARK, RATIO
from croupier.core.pods.request_parser import PERCENT
from croupier_lab.controlplane import API_COMPONENTS
from croupier_lab.lifecycle import LabPlan


@dataclass(frozen=True, slots=True)
class FilterSizes:
    nodes: Sequence[int]
    pods: Sequence[int]
    questions: int


FULL = FilterSizes((100, 1_000, 5_000), (1_000, 20_000), 300)
QUICK = FilterSizes((10,), (20, 60), 20)
WARM_UP = 5
"""Warm-up requests that are not counted: the first one ranks every node."""


@dataclass(frozen=True, slots=True)
class FilterLatencies:
    """Seconds per request, and CPU seconds of the extender for all requests."""

    taken: Sequence[float]
    cpu: float


async def latency(on: BenchEnv) -> list[Figure]:
    sizes = QUICK if on.quick else FULL
    found = []
    async with (
        on.raised(LabPlan(parts=API_COMPONENTS)) as lab,
        subject_process.started("filtering", lab.kubeconfig) as extender,
        aiohttp.ClientSession() as session,
    ):
        for nodes in sizes.nodes:
            for pods in sizes.pods:
                asked = await measured(extender, session, Task(nodes, pods), sizes.questions)
                found += _figures(f"filter, {nodes:,} nodes, {pods:,} pods run", asked)
    return found


async def measured(
    extender: SubjectProcess, session: aiohttp.ClientSession, task: Task, questions: int
) -> FilterLatencies:
    await extender.tell(msgspec.json.encode(task).decode())
    url = (await extender.hear())["url"]
    taken, spent = [], []
    for number in range(WARM_UP + questions):
        body = question(number, task.nodes)
        began = time.perf_counter()
        async with session.post(
            f"{url}/filter", data=body, headers={"Content-Type": "application/json"}
        ) as got:
            answer = msgspec.json.decode(await got.read())
        taken.append(time.perf_counter() - began)
        (node,) = answer["NodeNames"]
        await extender.tell(f"bench/new-{number}/{number} {node}")
        spent.append((await extender.hear())["spent"])
    await extender.tell("enough")
    return FilterLatencies(taken[WARM_UP:], spent[-1] - spent[WARM_UP - 1])


def question(number: int, nodes: int) -> bytes:
    """A filter request with a pod of realistic size and all nodes."""
    pod: dict[str, Any] = objects.pod(number, nodes)
    pod["metadata"] |= {
        "namespace": "bench",
        "uid": f"00000000-0000-0000-0000-{number:012d}",
        "annotations": {CARDS: "1", RATIO: "30"},
    }
    del pod["spec"]["nodeName"]
    for container in pod["spec"]["containers"]:
        container["resources"] = {"limits": {MARK: "1", "cpu": "2"}}
    pod["spec"]["containers"][0]["resources"]["limits"][PERCENT] = "30"
    names = [f"gpu-worker-{node}" for node in range(nodes)]
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


def _figures(what: str, asked: FilterLatencies) -> list[Figure]:
    percentiles = quantiles(asked.taken, n=100)
    cpu = asked.cpu / len(asked.taken) * 1000
    return [
        Figure("filter", f"{what}: median", "ms", {OURS: percentiles[49] * 1000}),
        Figure("filter", f"{what}: 99th percentile", "ms", {OURS: percentiles[98] * 1000}),
        Figure("filter", f"{what}: CPU of the extender", "ms", {OURS: cpu}),
    ]
