"""All metrics of the runtime, in the registry that is passed in.

Series with the name of a cache are removed with it.
"""

import asyncio
import platform
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from croupier.kube.cache.reflector import Reflector, ReflectorStats
from croupier.kube.cache.store import Store
from croupier.kube.controller.metrics import (
    LATENCY_BUCKETS,
    ControllerMetrics,
    EventMetrics,
    LeaderMetrics,
    ReconcileMetrics,
)
from croupier.kube.serving import build_info

# No second series for every counter: no rule or dashboard uses it.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no annotation for it


class ProcessMetrics:
    """The metrics of one process; its registry is served at `/metrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        ProcessCollector(registry=registry)
        build = Gauge(
            "croupier_build_info",
            "Always 1; the labels have the version and commit of the program, and the version of Python",
            ["version", "revision", "python"],
            registry=registry,
        )
        build.labels(build_info.version(), build_info.revision(), platform.python_version()).set(1)
        self.caches = CacheCollector()
        registry.register(self.caches)
        self.controllers = ReconcileMetrics(registry)
        self.leader = LeaderMetrics(registry)
        self.events = EventMetrics(registry)
        self.requests = Counter(
            "croupier_client_requests",
            "Requests to the API server by status code; code 0 means no response",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "croupier_client_request_duration_seconds",
            "Duration of requests to the API server",
            ["verb", "resource"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.loop_lag = Histogram(
            "croupier_loop_lag_duration_seconds",
            "Delay of event-loop callbacks past their due time",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )

    def of_leader(self, lease: str) -> CollectorRegistry:
        """A registry for metrics that this process exports only while it holds `lease` (namespace/name)."""
        registry = _LeaderRegistry(lambda: self.leader.leads(lease))
        self.registry.register(registry)
        return registry

    def request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Implements `RequestObserver`."""
        self.requests.labels(verb, resource, str(code)).inc()
        self.request_seconds.labels(verb, resource).observe(seconds)

    def controller(self, name: str) -> ControllerMetrics:
        return ControllerMetrics(name, self.controllers)

    async def measure_loop(self, every: float = 1.0) -> None:
        """Measure the delay of the event loop until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + every
            await asyncio.sleep(every)
            self.loop_lag.observe(max(0.0, loop.time() - due))


class _LeaderRegistry(CollectorRegistry):
    """Every replica knows the state of the cluster. Only the leader exports it, so that sums are right."""

    def __init__(self, leads: Callable[[], bool]) -> None:
        super().__init__()
        self._leads = leads

    def collect(self) -> Iterator[Metric]:
        if self._leads():
            yield from super().collect()


_CACHE_COUNTERS: dict[str, tuple[str, Callable[[ReflectorStats], int]]] = {
    "relists": ("Complete lists, including the first", lambda stats: stats.lists),
    "watches": ("Watches started, including restarts", lambda stats: stats.watches),
    "watch_restarts": (
        "Watches that were started again after an end",
        lambda stats: max(0, stats.watches - 1),
    ),
    "failures": ("Lists and watches that failed", lambda stats: stats.failures),
    "watch_events": ("Changes and bookmarks received by watches", lambda stats: stats.events),
    "skipped_objects": (
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
