"""How far nodes are prepared: read from the store when asked, so that what is gone is not shown."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.api.gpu import GPUNodeInventory
from croupier.kube.store import Store


class BootstrapMetrics:
    """`gpu_bootstrap_node_phase{node,phase}` and `gpu_bootstrap_ready{node}`."""

    def __init__(self, registry: CollectorRegistry, inventories: Store[GPUNodeInventory]) -> None:
        self._inventories = inventories
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Nothing is known before the first scrape; this keeps registration from scraping."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        phase = GaugeMetricFamily(
            "gpu_bootstrap_node_phase", "1 for the phase the node is in", labels=["node", "phase"]
        )
        ready = GaugeMetricFamily(
            "gpu_bootstrap_ready", "1 if the node is prepared to serve its cards", labels=["node"]
        )
        for found in self._inventories:
            name, now = found.metadata.name, found.status.bootstrap.phase
            if now is not None:
                phase.add_metric([name, now], 1)
            ready.add_metric([name], float(now == "Ready"))
        yield phase
        yield ready
