"""What is counted about pools. It is read when asked, so that a pool that is gone has no series."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.api.gpu import GPUPool
from croupier.core.pools.maintenance import STUCK
from croupier.kube.store import Store

_CAPACITY = {
    "total": "Units the pool can give",
    "used": "Units that are held of it",
    "booked": "Units promised to pods that wait for a node",
    "available": "Units that are left",
}


class PoolMetrics:
    """`gpupool_*`; fits `pool.Figures`."""

    def __init__(self, registry: CollectorRegistry, pools: Store[GPUPool]) -> None:
        self._pools = pools
        self._cards: dict[str, int] = {}
        self._slots: dict[str, Mapping[str, int]] = {}
        registry.register(self)

    def looked(self, pool: str, cards: int, slots: Mapping[str, int]) -> None:
        """So many cards serve the pool, and so many units are on each node."""
        self._cards[pool], self._slots[pool] = cards, slots

    def forget(self, pool: str) -> None:
        self._cards.pop(pool, None)
        self._slots.pop(pool, None)

    def describe(self) -> Iterator[Metric]:
        """Nothing is known before the first scrape; this keeps registration from scraping."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        pools = sorted(self._pools, key=lambda pool: pool.metadata.name)
        yield from self._capacity(pools)
        yield from self._conditions(pools)
        assigned = GaugeMetricFamily("gpupool_assignments", "Cards that serve the pool", labels=["pool"])
        slots = GaugeMetricFamily(
            "gpupool_node_slots", "Units of the pool on the node", labels=["pool", "node"]
        )
        for pool in pools:
            name = pool.metadata.name
            if name in self._cards:
                assigned.add_metric([name], self._cards[name])
            for node, units in sorted(self._slots.get(name, {}).items()):
                slots.add_metric([name, node], units)
        yield assigned
        yield slots

    def _capacity(self, pools: list[GPUPool]) -> Iterator[Metric]:
        for field, text in _CAPACITY.items():
            family = GaugeMetricFamily(f"gpupool_capacity_{field}", text, labels=["pool"])
            for pool in pools:
                if pool.status.capacity is not None:
                    family.add_metric([pool.metadata.name], getattr(pool.status.capacity, field))
            yield family

    def _conditions(self, pools: list[GPUPool]) -> Iterator[Metric]:
        condition = GaugeMetricFamily(
            "gpupool_condition", "1 while the condition holds", labels=["pool", "condition"]
        )
        stuck = GaugeMetricFamily(
            "gpupool_mode_change_stuck", "1 while a change waits longer than it should", labels=["pool"]
        )
        for pool in pools:
            name = pool.metadata.name
            for one in pool.status.conditions:
                condition.add_metric([name, one.type], one.status == "True")
            stuck.add_metric([name], any(one.reason == STUCK for one in pool.status.conditions))
        yield condition
        yield stuck
