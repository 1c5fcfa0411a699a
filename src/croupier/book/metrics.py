"""What writing the ledger costs: how often, how long, how many share a write, how often in vain."""

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Gauge(Protocol):
    """What the writers of the ledger tell."""

    def attempted(self, changes: int, seconds: float) -> None:
        """A guarded write of so many changes was answered, or was not, after so long."""
        ...

    def conflicted(self) -> None:
        """It was refused, because somebody else wrote first."""
        ...


class Unmeasured:
    """For those who do not count."""

    def attempted(self, changes: int, seconds: float) -> None: ...

    def conflicted(self) -> None: ...


class LedgerMetrics:
    """One per process; fits `Gauge`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "croupier_ledger_cas_attempts", "Guarded writes of a ledger", registry=registry
        )
        self._conflicts = Counter(
            "croupier_ledger_cas_conflicts",
            "Guarded writes refused because the ledger had changed",
            registry=registry,
        )
        self._seconds = Histogram(
            "croupier_ledger_cas_seconds",
            "Time one guarded write of a ledger took",
            buckets=SECONDS,
            registry=registry,
        )
        self._batch = Histogram(
            "croupier_ledger_batch_size", "Changes that shared one write", buckets=BATCHES, registry=registry
        )

    def attempted(self, changes: int, seconds: float) -> None:
        self._attempts.inc()
        self._seconds.observe(seconds)
        self._batch.observe(changes)

    def conflicted(self) -> None:
        self._conflicts.inc()
