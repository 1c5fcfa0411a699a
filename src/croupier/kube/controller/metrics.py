"""Metrics of controllers, leader election and Events.

Series with the name of a controller are removed with it.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
FAILED = ("error", "terminal")
"""Outcomes of a failed reconcile (reconcile.py)."""


class ReconcileMetrics:
    """The metrics of all controllers of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        label = ["controller"]
        self.queue_depth = Gauge(
            "croupier_queue_depth", "Keys ready in the work queue", label, registry=registry
        )
        self.queue_adds = Counter(
            "croupier_queue_adds", "Keys added to the work queue", label, registry=registry
        )
        self.queue_retries = Counter(
            "croupier_queue_retries", "Keys requeued after a failure", label, registry=registry
        )
        self.queue_seconds = Histogram(
            "croupier_queue_duration_seconds",
            "Time a ready key waited in the work queue for a worker",
            label,
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.work_seconds = Histogram(
            "croupier_reconcile_duration_seconds",
            "Duration of a reconcile",
            label,
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.reconciles = Counter(
            "croupier_reconciles",
            "Reconciles by outcome",
            ["controller", "outcome"],
            registry=registry,
        )
        self.workers_busy = Gauge("croupier_workers_busy", "Reconciles running now", label, registry=registry)
        self.expectations_missed = Counter(
            "croupier_expectations_missed",
            "The controller's own writes that its cache did not show in time",
            label,
            registry=registry,
        )


class ControllerMetrics:
    """The series of one controller and its work queue. `failures` also counts its failed reconciles."""

    def __init__(
        self, name: str = "", metrics: ReconcileMetrics | None = None, failures: Counter | None = None
    ) -> None:
        self._name = name
        self._metrics = metrics = metrics or ReconcileMetrics(CollectorRegistry())
        self._failures = failures
        self._adds = metrics.queue_adds.labels(name)
        self._retries = metrics.queue_retries.labels(name)
        self._queue_seconds = metrics.queue_seconds.labels(name)
        self._work_seconds = metrics.work_seconds.labels(name)
        self._busy = metrics.workers_busy.labels(name)
        self._depth = metrics.queue_depth.labels(name)
        self._missed = metrics.expectations_missed.labels(name)
        self._outcomes: dict[str, Counter] = {}

    def watch_depth(self, depth: Callable[[], int]) -> None:
        self._depth.set_function(depth)

    def added(self) -> None:
        self._adds.inc()

    def taken(self, waited: float) -> None:
        self._queue_seconds.observe(waited)

    def retried(self) -> None:
        self._retries.inc()

    def started(self) -> None:
        self._busy.inc()

    def ended(self, outcome: str, seconds: float) -> None:
        self._busy.dec()
        self._work_seconds.observe(seconds)
        if outcome not in self._outcomes:
            self._outcomes[outcome] = self._metrics.reconciles.labels(self._name, outcome)
        self._outcomes[outcome].inc()
        if self._failures is not None and outcome in FAILED:
            self._failures.inc()

    def missed(self, expectations: int) -> None:
        self._missed.inc(expectations)

    def gone(self) -> None:
        """Remove the series of the controller."""
        m = self._metrics
        for family in (m.queue_depth, m.queue_adds, m.queue_retries, m.queue_seconds, m.work_seconds):
            family.remove(self._name)
        m.workers_busy.remove(self._name)
        m.expectations_missed.remove(self._name)
        for outcome in self._outcomes:
            m.reconciles.remove(self._name, outcome)


class LeaderMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._leader = Gauge(
            "croupier_leader", "1 while this process holds the lease", ["lease"], registry=registry
        )
        self._held: set[str] = set()

    def leading(self, lease: str, leads: bool) -> None:
        self._leader.labels(lease).set(leads)
        (self._held.add if leads else self._held.discard)(lease)

    def leads(self, lease: str) -> bool:
        """Whether this process holds the lease now."""
        return lease in self._held


class EventMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._recorded = Counter(
            "croupier_events_recorded", "Kubernetes Events written", ["type"], registry=registry
        )
        self._dropped = Counter(
            "croupier_events_dropped", "Kubernetes Events dropped, by reason", ["reason"], registry=registry
        )

    def recorded(self, kind: str) -> None:
        self._recorded.labels(kind).inc()

    def dropped(self, why: str) -> None:
        self._dropped.labels(why).inc()
