"""The metrics `croupier_node_*` of the agent. In a fleet they are sums over all nodes."""

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.core.nodes.plugin_devices import ServedResources

BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class NodeAgentMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._offers: dict[str, ServedResources] = {}
        self._rounds = Counter("croupier_node_rounds", "Rounds of the agent", registry=registry)
        self._looks = Histogram(
            "croupier_node_inspection_duration_seconds",
            "Duration of a driver inspection",
            buckets=BUCKETS,
            registry=registry,
        )
        self._cuts = Counter(
            "croupier_node_repartitions",
            "Repartitionings of cards by outcome",
            ["outcome"],
            registry=registry,
        )
        self._silences = Counter(
            "croupier_node_heartbeat_failures", "Failed writes of the heartbeat Lease", registry=registry
        )
        for outcome in ("applied", "restored", "failed"):
            self._cuts.labels(outcome)
        registry.register(self)

    def driver_inspected(self, seconds: float) -> None:
        self._looks.observe(seconds)

    def offered(self, node: str, offer: ServedResources) -> None:
        self._rounds.inc()
        self._offers[node] = offer

    def left(self, node: str) -> None:
        self._offers.pop(node, None)

    def cut(self, outcome: str) -> None:
        """`outcome` is applied, restored (failed and rolled back) or failed."""
        self._cuts.labels(outcome).inc()

    def heartbeat_failed(self) -> None:
        self._silences.inc()

    def describe(self) -> Iterator[Metric]:
        """Empty, so that registration does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        devices = GaugeMetricFamily(
            "croupier_node_devices", "Devices offered to pods", labels=["resource", "health"]
        )
        for (resource, health), number in sorted(self._devices().items()):
            devices.add_metric([resource, health], number)
        yield devices

    def _devices(self) -> Tally[tuple[str, str]]:
        """The number of devices. A resource without devices counts 0, as in the kubelet."""
        counts: Tally[tuple[str, str]] = Tally()
        for offer in self._offers.values():
            for resource, healthy in offer.healthy().items():
                counts[resource, "healthy"] += healthy
                counts[resource, "unhealthy"] += len(offer.resources[resource]) - healthy
        return counts
