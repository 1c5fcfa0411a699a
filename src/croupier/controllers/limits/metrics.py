"""Metrics of PodAllocations."""

from functools import partial
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from croupier.api.mbcas import PodAllocation
from croupier.core.model.phase import AllocationPhase
from croupier.kube.cache.store import Store, StoreIndex

SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)


class PodAllocationMetrics:
    """`mbcas_resizes_total{direction}`, `mbcas_resize_failures_total{reason}`,
    `mbcas_resize_duration_seconds`, `mbcas_status_writes_total` and `mbcas_podallocations{phase}`."""

    def __init__(self, registry: CollectorRegistry, allocations: Store[PodAllocation]) -> None:
        self._resizes = Counter(
            "mbcas_resizes",
            "Changes of pod CPU limits accepted by the API server",
            ["direction"],
            registry=registry,
        )
        self._failures = Counter(
            "mbcas_resize_failures",
            "Transitions of PodAllocations to Failed or to another failure reason",
            ["reason"],
            registry=registry,
        )
        self._seconds = Histogram(
            "mbcas_resize_duration_seconds",
            "Time from a change to the kubelet's report that it is applied",
            buckets=SECONDS,
            registry=registry,
        )
        self._writes = Counter("mbcas_status_writes", "Writes of a PodAllocation's status", registry=registry)
        by_phase = allocations.index(lambda allocation: (allocation.status.phase,))
        phases = Gauge("mbcas_podallocations", "PodAllocations by phase", ["phase"], registry=registry)
        for phase in get_args(AllocationPhase):
            phases.labels(phase).set_function(partial(_count, by_phase, phase))

    def resized(self, direction: str) -> None:
        self._resizes.labels(direction).inc()

    def failed(self, reason: str) -> None:
        self._failures.labels(reason).inc()

    def applied(self, seconds: float) -> None:
        self._seconds.observe(seconds)

    def wrote(self) -> None:
        self._writes.inc()


def _count(by_phase: StoreIndex[PodAllocation, AllocationPhase], phase: AllocationPhase) -> int:
    return len(by_phase.keys(phase))
