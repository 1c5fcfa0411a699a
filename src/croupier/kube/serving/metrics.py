"""All metrics of the runtime, in the registry that is passed in.

The lower packages define small protocols (`QueueMetrics`, `RequestObserver`, ...),
which the classes here implement. Series with the name of a controller or cache are
removed with it.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from croupier.kube.cache.reflector import Reflector, ReflectorStats
from croupier.kube.cache.store import Store

LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class ProcessMetrics:
    """The metrics of one process; its registry is served at `/metrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._client(registry)
        self.caches = CacheCollector()
        registry.register(self.caches)
        self._controllers(registry)
        self._rest(registry)

    def _client(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "croupier_client_requests",
            "Requests to the API server by status code; code 0 means no response",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "croupier_client_request_seconds",
            "Duration of requests to the API server",
            ["verb", "resource"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )

    def _controllers(self, registry: CollectorRegistry) -> None:
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
            "croupier_queue_seconds",
            "Time a ready key waited in the work queue for a worker",
            label,
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.work_seconds = Histogram(
            "croupier_reconcile_seconds",
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

    def _rest(self, registry: CollectorRegistry) -> None:
        self.leader = Gauge(
            "croupier_leader", "1 while this process holds the lease", ["lease"], registry=registry
        )
        self.events_recorded = Counter(
            "croupier_events_recorded", "Kubernetes Events written", ["type"], registry=registry
        )
        self.events_dropped = Counter(
            "croupier_events_dropped", "Kubernetes Events dropped, by reason", ["why"], registry=registry
        )
        self.loop_lag = Histogram(
            "croupier_loop_lag_seconds",
            "Delay of event-loop callbacks past their due time",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )

    def request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Implements `RequestObserver`."""
        self.requests.labels(verb, resource, str(code)).inc()
        self.request_seconds.labels(verb, resource).observe(seconds)

    def leading(self, lease: str, leads: bool) -> None:
        """Implements `LeaderMetrics`."""
        self.leader.labels(lease).set(leads)

    def recorded(self, kind: str) -> None:
        """Implements `EventMetrics`, with `dropped`."""
        self.events_recorded.labels(kind).inc()

    def dropped(self, why: str) -> None:
        self.events_dropped.labels(why).inc()

    def controller(self, name: str) -> "ControllerMetrics":
        return ControllerMetrics(self, name)

    async def measure_loop(self, every: float = 1.0) -> None:
        """Measure the delay of the event loop until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + every
            await asyncio.sleep(every)
            self.loop_lag.observe(max(0.0, loop.time() - due))


class ControllerMetrics:
    """The series of one controller; implements `QueueMetrics` and `ReconcileMetrics`."""

    def __init__(self, metrics: ProcessMetrics, name: str) -> None:
        self._metrics = metrics
        self._name = name
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


_CACHE_COUNTERS: dict[str, tuple[str, Callable[[ReflectorStats], int]]] = {
    "relists": ("Complete lists, including the first", lambda stats: stats.lists),
    "watches": ("Watches started, including restarts", lambda stats: stats.watches),
    "watch_restarts": ("Watches restarted", lambda stats: max(0, stats.watches - 1)),
    "failures": ("Lists and watches that failed", lambda stats: stats.failures),
    "events_absorbed": ("Changes and bookmarks received by watches", lambda stats: stats.events),
    "poison_objects": (
        "Objects skipped because they did not match their type",
        lambda stats: stats.skipped,
    ),
}


class CacheCollector:
    """Reads stores and reflectors at scrape time, so that watch events need no accounting."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Store[Any], Reflector[Any]]] = {}

    def add(self, store: Store[Any], reflector: Reflector[Any], name: str | None = None) -> None:
        """`name` distinguishes two caches of one kind; default is the name of the kind."""
        self._known[name or store.resource.full_name] = (store, reflector)

    def remove(self, name: str) -> None:
        self._known.pop(name, None)

    def describe(self) -> Iterator[Metric]:
        """Empty, so that registration does not scrape."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        for name, (text, read) in _CACHE_COUNTERS.items():
            counter = CounterMetricFamily(f"croupier_store_{name}", text, labels=["resource"])
            for resource, (_, reflector) in self._known.items():
                counter.add_metric([resource], read(reflector.stats))
            yield counter
        size = GaugeMetricFamily("croupier_store_objects", "Objects in the cache", labels=["resource"])
        age = GaugeMetricFamily(
            "croupier_store_staleness_seconds",
            "Time since the last response of the API server to a list or watch",
            labels=["resource"],
        )
        listeners = GaugeMetricFamily(
            "croupier_store_listeners",
            "Indexes and subscribers notified of every change",
            labels=["resource", "kind"],
        )
        for resource, (store, reflector) in self._known.items():
            size.add_metric([resource], len(store))
            for kind, number in zip(("index", "subscriber"), store.load, strict=True):
                listeners.add_metric([resource, kind], number)
            age.add_metric([resource], reflector.staleness())
        yield size
        yield age
        yield listeners
