"""Metrics of Reservations."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from croupier.api.mps import Reservation
from croupier.kube.cache.store import Store


class ReservationMetrics:
    """`reservations_total`, `reservations_failed_total{reason}` and `reservations_active`."""

    def __init__(self, registry: CollectorRegistry, reservations: Store[Reservation]) -> None:
        self._granted = Counter(
            "reservations", "Reservations granted (phase became Reserved)", registry=registry
        )
        self._failed = Counter(
            "reservations_failed",
            "Reservations refused (phase became Failed, or the reason of the failure changed)",
            ["reason"],
            registry=registry,
        )
        active = Gauge(
            "reservations_active",
            "Reservations that currently hold cards (phase Reserved)",
            registry=registry,
        )
        by_phase = reservations.index(lambda item: (item.status.phase,))
        active.set_function(lambda: len(by_phase.keys("Reserved")))

    def granted(self) -> None:
        self._granted.inc()

    def failed(self, reason: str) -> None:
        self._failed.labels(reason).inc()
