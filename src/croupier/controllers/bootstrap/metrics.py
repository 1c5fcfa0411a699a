"""Metrics about node bootstrap, computed from the store at each scrape."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.api.gpu import GPUNodeInventory
from croupier.kube.cache.store import Store


class BootstrapMetrics:
    """`gpu_bootstrap_node_phase{node,phase}` and `gpu_bootstrap_ready{node}`."""

    def __init__(self, registry: CollectorRegistry, inventories: Store[GPUNodeInventory]) -> None:
        self._inventories = inventories
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        phase = GaugeMetricFamily(
            "gpu_bootstrap_node_phase",
            "1 for the current bootstrap phase of the node",
            labels=["node", "phase"],
        )
        ready = GaugeMetricFamily(
            "gpu_bootstrap_ready", "1 if the node is ready to serve its cards", labels=["node"]
        )
        for inventory in self._inventories:
            name, current = inventory.metadata.name, inventory.status.bootstrap.phase
            if current is not None:
                phase.add_metric([name, current], 1)
            ready.add_metric([name], float(current == "Ready"))
        yield phase
        yield ready
