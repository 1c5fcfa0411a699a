"""Metrics of ledger writes: attempts, duration, batch size and conflicts."""

from prometheus_client import CollectorRegistry, Counter, Histogram

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class LedgerWriteMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "croupier_ledger_cas_attempts", "Compare-and-swap writes of a ledger", registry=registry
        )
        self._conflicts = Counter(
            "croupier_ledger_cas_conflicts",
            "Compare-and-swap writes of a ledger refused because it had changed",
            registry=registry,
        )
        self._seconds = Histogram(
            "croupier_ledger_cas_duration_seconds",
            "Duration of a compare-and-swap write of a ledger",
            buckets=SECONDS,
            registry=registry,
        )
        self._batch = Histogram(
            "croupier_ledger_batch_size",
            "Number of changes in one write of a ledger",
            buckets=BATCHES,
            registry=registry,
        )

    def attempted(self, changes: int, seconds: float) -> None:
        """A compare-and-swap write of `changes` changes ended after `seconds`, with or without success."""
        self._attempts.inc()
        self._seconds.observe(seconds)
        self._batch.observe(changes)

    def conflicted(self) -> None:
        self._conflicts.inc()
