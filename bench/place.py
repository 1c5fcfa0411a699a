"""Placement of thousands of one-GPU pods by kube-scheduler: alone, and with Croupier.

The set-ups alternate in one cluster, and results are compared within one run only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import cluster, processes
from bench.cluster import BenchCluster, PlacementResult
from bench.env import BenchEnv
from bench.figures import OURS, Figure
from croupier.api.core_v1 import Pod
from croupier.api.mps.allocation import ALLOCATION, MARK
from croupier.capacity.manager import CapacityManagerKind

STOCK = "stock scheduler alone"


@dataclass(frozen=True, slots=True)
class SchedulerSetup:
    """Without a capacity manager, the stock scheduler runs alone."""

    book: CapacityManagerKind | None = None
    strategy: str = ""

    def __str__(self) -> str:
        return f"{self.book}, {self.strategy}" if self.book else STOCK


@dataclass(frozen=True, slots=True)
class PlacementSizes:
    nodes: int
    pods: int
    turns: Sequence[SchedulerSetup]


_STOCK_ONLY = SchedulerSetup()
FULL = PlacementSizes(
    500,
    4_000,
    (
        _STOCK_ONLY,
        SchedulerSetup("InMemory", "BinPack"),
        SchedulerSetup("CRD", "BinPack"),
        _STOCK_ONLY,
        SchedulerSetup("InMemory", "Spread"),
        SchedulerSetup("CRD", "Spread"),
        _STOCK_ONLY,
    ),
)
QUICK = PlacementSizes(
    3, 20, (_STOCK_ONLY, SchedulerSetup("InMemory", "BinPack"), SchedulerSetup("CRD", "Spread"))
)


async def placement(on: BenchEnv) -> list[Figure]:
    sizes = QUICK if on.quick else FULL
    done: list[tuple[SchedulerSetup, PlacementResult]] = []
    async with cluster.raised(on, sizes.nodes) as field:
        for turn in sizes.turns:
            on.show.step(f"Placing {sizes.pods:,} pods: {turn}")
            done.append((turn, await run_setup(field, turn, sizes)))
    return _figures(sizes, done)


async def run_setup(field: BenchCluster, turn: SchedulerSetup, sizes: PlacementSizes) -> PlacementResult:
    async with processes.running(field.lab, field.api, book=turn.book, strategy=turn.strategy) as helpers:
        make = partial(pod, marked=turn.book is not None)
        placed = await cluster.place(field, helpers, sizes.pods, make)
        if turn.book is not None:
            _check(placed.pods)
        await cluster.clear(field)
    return placed


def pod(number: int, *, marked: bool) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "1"} | ({MARK: "1"} if marked else {})
    return {
        "metadata": {"name": f"pod-{number}", "labels": {"app": "bench"}},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [
                {"name": "main", "image": "registry.example/main:1", "resources": {"limits": limits}}
            ],
        },
    }


def _check(pods: Sequence[Pod]) -> None:
    """Fail if a card was allocated twice."""
    cards = [(pod.spec.node_name, pod.metadata.annotations.get(ALLOCATION, "")) for pod in pods]
    if len(set(cards)) != len(cards) or not all(allocation for _, allocation in cards):
        raise RuntimeError("a card was allocated to two pods, or a pod was bound without an allocation")


def _figures(sizes: PlacementSizes, done: Sequence[tuple[SchedulerSetup, PlacementResult]]) -> list[Figure]:
    alone = [placed for turn, placed in done if not turn.book]
    pace = sum(placed.rate for placed in alone) / len(alone)
    title = f"{sizes.pods:,} pods on {sizes.nodes} × 8"
    found = []
    for turn, placed in done:
        if turn.book:
            found += _turn_figures(f"{title}, {turn}", placed, alone, pace)
    return found


def _turn_figures(
    title: str, placed: PlacementResult, alone: Sequence[PlacementResult], pace: float
) -> list[Figure]:
    figures = [
        Figure("place", f"{title}: placed", "pods/s", {OURS: placed.rate, STOCK: pace}),
        Figure("place", f"{title}: ratio to the stock scheduler", "", {OURS: placed.rate / pace}),
    ]
    writes = {
        "Bindings": "POST pods/binding",
        "writes of ledgers": "PUT nodereservations",
    }
    for what, request in writes.items():
        count = placed.account.writes[request] / len(placed.pods)
        figures.append(Figure("place", f"{title}: {what} a pod", "", {OURS: count}))
    total = placed.account.writes.total() / len(placed.pods)
    stock = sum(run.account.writes.total() / len(run.pods) for run in alone) / len(alone)
    figures.append(Figure("place", f"{title}: all API writes a pod", "", {OURS: total, STOCK: stock}))
    for process, spent in placed.account.cpu.items():
        stock_cpu = [run.account.cpu[process] for run in alone if process in run.account.cpu]
        theirs = {STOCK: _per_pod(sum(stock_cpu) / len(stock_cpu), placed)} if stock_cpu else {}
        figures.append(
            Figure(
                "place", f"{title}: CPU of {process} a pod", "ms", {OURS: _per_pod(spent, placed), **theirs}
            )
        )
    return figures


def _per_pod(seconds: float, placed: PlacementResult) -> float:
    return seconds / len(placed.pods) * 1000
