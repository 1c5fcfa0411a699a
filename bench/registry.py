"""All benchmarks, in the order they run."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from bench import (
    admission,
    available,
    contention,
    discover,
    filtering,
    market,
    one_node,
    place,
    reconcile,
    sync,
    ui,
)
from bench.env import BenchEnv
from bench.figures import Figure
from bench.filled_cluster import FilledCluster

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Bench(Generic[W]):
    """`minutes` is the duration at full size on two cores."""

    run: Callable[[W], Awaitable[Sequence[Figure]]]
    minutes: float


SHARED_CLUSTER_BENCHES: Final[Mapping[str, Bench[FilledCluster]]] = {
    "store": Bench(sync.absorption, 0.3),
    "burst": Bench(sync.burst, 0.5),
    "sync": Bench(sync.first_sync, 3),
    "reconcile": Bench(reconcile.loop, 1),
    "available": Bench(available.asking, 1),
}
"""Benchmarks that share one cluster with thousands of Nodes and Pods."""

OWN_CLUSTER_BENCHES: Final[Mapping[str, Bench[BenchEnv]]] = {
    "contention": Bench(contention.contention, 3),
    "filter": Bench(filtering.latency, 0.5),
    "place": Bench(place.placement, 8),
    "one_node": Bench(one_node.onto_one_node, 1),
    "admission": Bench(admission.cost, 4),
    "discover": Bench(discover.fleet, 16),
    "market": Bench(market.cost, 0.2),
    "ui": Bench(ui.page, 17),
}
"""Benchmarks that start their own cluster."""

BENCHES: Final[Mapping[str, Bench[Any]]] = {**SHARED_CLUSTER_BENCHES, **OWN_CLUSTER_BENCHES}
