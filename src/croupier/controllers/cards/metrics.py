"""Metrics about cards, computed from the store at each scrape."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.api import meta
from croupier.api.gpu import GPUDevice
from croupier.api.gpu.device import OCCUPIED
from croupier.kube.cache.store import Store
from croupier.kube.client.clock import Clock, SystemClock


class DeviceMetrics:
    """`gpu_device_{unassigned,reserved,idle}_total`, `gpu_device_reservation_age_seconds`."""

    def __init__(
        self, registry: CollectorRegistry, devices: Store[GPUDevice], clock: Clock | None = None
    ) -> None:
        self._devices = devices
        self._by_state = devices.index(lambda device: (device.status.state,))
        self._clock = clock or SystemClock()
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "gpu_device_unassigned_total",
            "Cards without a pool (state Unassigned)",
            value=len(self._by_state.keys("Unassigned")),
        )
        yield GaugeMetricFamily(
            "gpu_device_reserved_total",
            "Cards of pools of which pods hold a part (state Reserved)",
            value=len(self._by_state.keys("Reserved")),
        )
        idle = GaugeMetricFamily(
            "croupier_pool_idle_cards", "Held cards that no holder uses, by pool", labels=["pool"]
        )
        for pool, number in sorted(self._idle().items()):
            idle.add_metric([pool], number)
        yield idle
        yield GaugeMetricFamily(
            "gpu_device_reservation_age_seconds",
            "Seconds since the longest held card was first held",
            value=max((self._held_for(device) for device in self._devices), default=0.0),
        )

    def _idle(self) -> Counter[str]:
        """By pool, also pools without idle cards; cards of no pool have an empty name."""
        counts = Counter(dict.fromkeys((device.pool_name for device in self._devices), 0))
        counts.update(device.pool_name for device in self._devices if device.status.idle_since is not None)
        return counts

    def _held_for(self, device: GPUDevice) -> float:
        held = meta.condition(device.status.conditions, OCCUPIED)
        if held is None or held.status != "True":
            return 0.0
        return max(0.0, (self._clock.now() - held.last_transition_time).total_seconds())
