"""What the agent of a node counts: `gpu_node_*`. Of a fleet, all its nodes together."""

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.core.nodes.devices import Offer

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class AgentMetrics:
    """Fits `agent.Gauge` and `wrong_card.Gauge`; a collector for what is offered now."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._offers: dict[str, Offer] = {}
        self._rounds = Counter("gpu_node_rounds", "Looks at the cards and what follows", registry=registry)
        self._looks = Histogram(
            "gpu_node_look_seconds", "Time until the driver had told", buckets=SECONDS, registry=registry
        )
        self._cuts = Counter(
            "gpu_node_cuts", "Changes of a card by how they ended", ["outcome"], registry=registry
        )
        self._wrong = Counter(
            "gpu_node_wrong_cards",
            "Pods with other cards than they were promised, and what was done",
            ["what"],
            registry=registry,
        )
        self._silences = Counter(
            "gpu_node_heartbeat_failures", "Leases that could not be written; tried again", registry=registry
        )
        for outcome in ("applied", "restored", "failed"):
            self._cuts.labels(outcome)
        for what in ("noticed", "followed", "removed"):
            self._wrong.labels(what)
        registry.register(self)

    def looked(self, seconds: float) -> None:
        self._looks.observe(seconds)

    def offered(self, node: str, offer: Offer) -> None:
        self._rounds.inc()
        self._offers[node] = offer

    def left(self, node: str) -> None:
        self._offers.pop(node, None)

    def cut(self, outcome: str) -> None:
        self._cuts.labels(outcome).inc()

    def wrong(self, what: str) -> None:
        self._wrong.labels(what).inc()

    def unheard(self) -> None:
        self._silences.inc()

    def describe(self) -> Iterator[Metric]:
        """Nothing is known before the first scrape; this keeps registration from scraping."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        devices = GaugeMetricFamily(
            "gpu_node_devices", "Devices that are offered to pods", labels=["resource", "health"]
        )
        for (resource, health), number in sorted(self._devices().items()):
            devices.add_metric([resource, health], number)
        yield devices

    def _devices(self) -> Tally[tuple[str, str]]:
        """A resource that has none any more is told as 0, as the kubelet is."""
        found: Tally[tuple[str, str]] = Tally()
        for offer in self._offers.values():
            for resource, healthy in offer.healthy().items():
                found[resource, "healthy"] += healthy
                found[resource, "unhealthy"] += len(offer.resources[resource]) - healthy
        return found
