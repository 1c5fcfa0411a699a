"""Metrics about cards and nodes, computed from the stores at each scrape.

So the series of a deleted node disappear with it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.api.gpu import GPUDevice, GPUNodeInventory
from croupier.core.cards.lifecycle import CardState
from croupier.core.model.withheld import WithheldState
from croupier.kube.cache.store import Store


class InventoryMetrics:
    """`gpu_inventory_devices_{total,state,withheld}` and `gpu_inventory_condition`."""

    def __init__(
        self, registry: CollectorRegistry, devices: Store[GPUDevice], inventories: Store[GPUNodeInventory]
    ) -> None:
        self._devices = devices
        self._inventories = inventories
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        total = GaugeMetricFamily("gpu_inventory_devices_total", "Cards of the node", labels=["node"])
        by_state = GaugeMetricFamily(
            "gpu_inventory_devices_state", "Cards of the node by state", labels=["node", "state"]
        )
        counts = Counter(
            (device.status.node_name or "", device.status.state or "Unassigned") for device in self._devices
        )
        nodes = {name for name, _ in counts} | {inventory.metadata.name for inventory in self._inventories}
        for node in sorted(nodes - {""}):
            total.add_metric([node], sum(counts[node, state] for state in get_args(CardState)))
            for state in get_args(CardState):
                by_state.add_metric([node, state], counts[node, state])
        yield total
        yield by_state
        yield self._withheld(nodes - {""})
        yield self._conditions()

    def _withheld(self, nodes: Iterable[str]) -> Metric:
        withheld = GaugeMetricFamily(
            "croupier_inventory_withheld_cards",
            "Cards of the node that take no new pods, by the reason: Drained, Retired, Changing or Unhealthy",
            labels=["node", "reason"],
        )
        counts = Counter(
            (device.status.node_name or "", device.status.withheld.state)
            for device in self._devices
            if device.status.withheld is not None
        )
        for node in sorted(nodes):
            for reason in get_args(WithheldState):
                withheld.add_metric([node, reason], counts[node, reason])
        return withheld

    def _conditions(self) -> Metric:
        condition = GaugeMetricFamily(
            "gpu_inventory_condition",
            "1 while the condition of the GPUNodeInventory is True",
            labels=["node", "condition"],
        )
        for inventory in self._inventories:
            for current in inventory.status.conditions:
                condition.add_metric([inventory.metadata.name, current.type], current.status == "True")
        return condition
