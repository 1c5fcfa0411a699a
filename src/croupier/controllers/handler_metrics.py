"""The metric `gpu_handler_errors_total{handler}`: failed reconciles by handler."""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from croupier.kube.controller.controller_run import ReconcileMetrics

FAILED: Final = ("error", "terminal")
"""Outcomes of a failed reconcile (kube/controller/reconcile.py)."""


class HandlerErrors:
    """One instance for each process; `of` wraps the metrics of a controller."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._errors = Counter(
            "gpu_handler_errors",
            "Failed reconciles of cards, nodes and pools",
            ["handler"],
            registry=registry,
        )

    def of(self, handler: str, gauge: ReconcileMetrics) -> ReconcileMetrics:
        return _CountingMetrics(gauge, self._errors.labels(handler))


class _CountingMetrics:
    """Forwards everything to the wrapped metrics, and counts failures."""

    def __init__(self, gauge: ReconcileMetrics, errors: Counter) -> None:
        self._gauge = gauge
        self._errors = errors

    def watch_depth(self, depth: Callable[[], int]) -> None:
        self._gauge.watch_depth(depth)

    def added(self) -> None:
        self._gauge.added()

    def taken(self, waited: float) -> None:
        self._gauge.taken(waited)

    def retried(self) -> None:
        self._gauge.retried()

    def started(self) -> None:
        self._gauge.started()

    def ended(self, outcome: str, seconds: float) -> None:
        if outcome in FAILED:
            self._errors.inc()
        self._gauge.ended(outcome, seconds)

    def missed(self, expectations: int) -> None:
        self._gauge.missed(expectations)
