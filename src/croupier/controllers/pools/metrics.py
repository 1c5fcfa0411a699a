"""Metrics about pools, computed at each scrape, so that a deleted pool has no series."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.api.gpu import GPUPool
from croupier.core.pools.maintenance import STUCK
from croupier.kube.cache.store import Store

_CAPACITY = {
    "total": "Total units of the pool",
    "used": "Units of the pool that pods hold",
    "available": "Units of the pool that are available",
}


class PoolMetrics:
    """`gpupool_*` and `croupier_pool_*`."""

    def __init__(self, registry: CollectorRegistry, pools: Store[GPUPool]) -> None:
        self._pools = pools
        self._cards: dict[str, int] = {}
        self._slots: dict[str, Mapping[str, int]] = {}
        registry.register(self)

    def update(self, pool: str, cards: int, slots: Mapping[str, int]) -> None:
        """Set the number of cards of the pool, and the number of units on each node."""
        self._cards[pool], self._slots[pool] = cards, slots

    def forget(self, pool: str) -> None:
        self._cards.pop(pool, None)
        self._slots.pop(pool, None)

    def collect(self) -> Iterator[Metric]:
        pools = sorted(self._pools, key=lambda pool: pool.metadata.name)
        yield from self._capacity(pools)
        yield from self._conditions(pools)
        assigned = GaugeMetricFamily("gpupool_assignments", "Cards assigned to the pool", labels=["pool"])
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
            _add_capacity(family, pools, field)
            yield family
        booked = GaugeMetricFamily(
            "croupier_pool_capacity_booked", "Units booked by admitted pods without a node", labels=["pool"]
        )
        _add_capacity(booked, pools, "booked")
        yield booked

    def _conditions(self, pools: list[GPUPool]) -> Iterator[Metric]:
        condition = GaugeMetricFamily(
            "croupier_pool_condition",
            "1 while the condition of the pool is True",
            labels=["pool", "condition"],
        )
        stuck = GaugeMetricFamily(
            "croupier_pool_mode_change_stuck",
            "1 while a change of the pool is past its deadline",
            labels=["pool"],
        )
        for pool in pools:
            name = pool.metadata.name
            for current in pool.status.conditions:
                condition.add_metric([name, current.type], current.status == "True")
            stuck.add_metric([name], any(current.reason == STUCK for current in pool.status.conditions))
        yield condition
        yield stuck


def _add_capacity(family: GaugeMetricFamily, pools: list[GPUPool], field: str) -> None:
    for pool in pools:
        if pool.status.capacity is not None:
            family.add_metric([pool.metadata.name], getattr(pool.status.capacity, field))
