"""What is counted about Reservations."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from croupier.api.mps import Reservation
from croupier.kube.store import Store


class ReservationMetrics:
    """`reservations_total`, `reservations_failed_total{reason}` and `reservations_active`."""

    def __init__(self, registry: CollectorRegistry, reservations: Store[Reservation]) -> None:
        self._granted = Counter(
            "reservations", "Times a Reservation was granted: it became Reserved", registry=registry
        )
        self._failed = Counter(
            "reservations_failed",
            "Times a Reservation was refused: it became Failed, or the reason changed",
            ["reason"],
            registry=registry,
        )
        active = Gauge(
            "reservations_active", "Reservations that hold cards now (phase Reserved)", registry=registry
        )
        by_phase = reservations.index(lambda found: (found.status.phase,))
        active.set_function(lambda: len(by_phase.keys("Reserved")))

    def granted(self) -> None:
        self._granted.inc()

    def failed(self, reason: str) -> None:
        self._failed.labels(reason).inc()
