"""What is counted about cards and nodes, read from the caches when somebody asks.

So the series of a node that is gone are gone with it, and nothing has to be kept up.
"""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.api.gpu import GPUDevice, GPUNodeInventory
from croupier.api.gpu.device import DeviceState
from croupier.kube.store import Store


class InventoryMetrics:
    """`gpu_inventory_devices_total`, `gpu_inventory_devices_state` and `gpu_inventory_condition`."""

    def __init__(
        self, registry: CollectorRegistry, devices: Store[GPUDevice], inventories: Store[GPUNodeInventory]
    ) -> None:
        self._devices = devices
        self._inventories = inventories
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Nothing is known before the first scrape; this keeps registration from scraping."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        total = GaugeMetricFamily("gpu_inventory_devices_total", "Cards of the node", labels=["node"])
        by_state = GaugeMetricFamily(
            "gpu_inventory_devices_state", "Cards of the node by their state", labels=["node", "state"]
        )
        counts = Counter(
            (one.status.node_name or "", one.status.state or "Unassigned") for one in self._devices
        )
        nodes = {name for name, _ in counts} | {one.metadata.name for one in self._inventories}
        for node in sorted(nodes - {""}):
            total.add_metric([node], sum(counts[node, state] for state in get_args(DeviceState)))
            for state in get_args(DeviceState):
                by_state.add_metric([node, state], counts[node, state])
        yield total
        yield by_state
        yield self._conditions()

    def _conditions(self) -> Metric:
        condition = GaugeMetricFamily(
            "gpu_inventory_condition",
            "Conditions of the node's cards: 1 while they hold",
            labels=["node", "condition"],
        )
        for one in self._inventories:
            for found in one.status.conditions:
                condition.add_metric([one.metadata.name, found.type], found.status == "True")
        return condition
