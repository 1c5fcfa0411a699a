"""Simulates the CPU scheduler of a node second by second: CPU time, throttling and cgroup counters.

CPU is shared by weight, as the kernel shares it by requests, and no pod gets more than its limit. Work that
is not done is queued. One step is a second, so bursts shorter than a second are averaged: real quotas apply
every 100 ms and throttle somewhat more often.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from croupier.core.market import water_filling
from croupier.core.market.estimation import CPUSample
from croupier.core.market.terms import PodClass
from croupier.core.market.units import MICROS, SECOND
from croupier.core.market.water_filling import Claimant

LATE_AFTER: Final[Mapping[PodClass, int]] = {"latency": 0, "elastic": 60}
"""Seconds that work may wait before it is late."""
PERIODS: Final = 10
"""Number of 100 ms periods in a second."""


@dataclass(frozen=True, slots=True)
class SimulatedPod:
    """A simulated pod; `request` and `limit` are in quanta."""

    name: str
    book: PodClass
    request: int
    limit: int


@dataclass(slots=True)
class SimulatedCgroup:
    """The cgroup counters of a pod, in microseconds, and its queued work."""

    queue: deque[tuple[int, int]] = field(default_factory=deque)
    """(second of arrival, amount), the oldest first."""
    waiting: int = 0
    """Sum of the queued work."""
    usage: int = 0
    throttled: int = 0
    periods: int = 0
    throttled_periods: int = 0

    def come(self, second: int, work: int) -> None:
        if work:
            self.queue.append((second, work))
            self.waiting += work

    def work_off(self, served: int, before: int) -> int:
        """Serve the oldest work first; return how much of it arrived before that second."""
        self.usage += served
        self.waiting -= served
        late = 0
        while served:
            came, work = self.queue.popleft()
            done = min(work, served)
            served -= done
            late += done if came < before else 0
            if work > done:
                self.queue.appendleft((came, work - done))
        return late

    def sample(self, second: int, limit: int | None) -> CPUSample:
        quota = None if limit is None else limit * MICROS // PERIODS
        return CPUSample(
            second * SECOND, self.usage, self.throttled, self.periods, self.throttled_periods, quota
        )


@dataclass(frozen=True, slots=True)
class PodSecond:
    """The result of one second for one pod, in microseconds of CPU."""

    served: int
    late: int
    """The part of the served work that had waited too long."""
    throttled: bool
    """Its limit kept it from using more."""


class SimulatedKernel:
    def __init__(self, tenants: Sequence[SimulatedPod], capacity: int) -> None:
        self._tenants = tenants
        self._capacity = capacity * MICROS
        self._second = 0
        self.meters: Mapping[str, SimulatedCgroup] = {tenant.name: SimulatedCgroup() for tenant in tenants}

    def run(self, arriving: Mapping[str, int], limits: Mapping[str, int | None]) -> dict[str, PodSecond]:
        """Simulate one second with this new work per pod, under these limits."""
        self._second += 1
        claims, most = [], {}
        for tenant in self._tenants:
            limit = limits[tenant.name]
            most[tenant.name] = self._capacity if limit is None else limit * MICROS
            meter = self.meters[tenant.name]
            meter.come(self._second, arriving[tenant.name])
            high = min(meter.waiting, most[tenant.name])
            claims.append(Claimant(tenant.name, 0, high, max(1, tenant.request)))
        served = water_filling.fill(claims, self._capacity).amounts
        return {
            tenant.name: self._count(tenant, got, most[tenant.name])
            for tenant, got in zip(self._tenants, served, strict=True)
        }

    def _count(self, tenant: SimulatedPod, served: int, most: int) -> PodSecond:
        meter = self.meters[tenant.name]
        wanted = meter.waiting
        late = meter.work_off(served, before=self._second - LATE_AFTER[tenant.book])
        throttled = served == most < min(wanted, self._capacity)
        if served:
            meter.periods += PERIODS
        if throttled:
            # As in the kernel, the wait counts for every CPU on which a thread could run.
            threads = -(-min(wanted, self._capacity) // SECOND)
            meter.throttled_periods += PERIODS
            meter.throttled += max(0, threads * SECOND - served)
        return PodSecond(served, late, throttled)
