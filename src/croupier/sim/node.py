"""One second of a node's kernel: who gets CPU, whose quota bites, and what the counters then say.

CPU is shared by weight among those who want it, as the kernel shares it by requests; nobody gets more than
his limit. What is not done waits and is wanted again. A second is one step, so that bursts shorter than a
second are evened out: real quotas bite every 100 ms and therefore somewhat more often than here.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from croupier.core.market import filling
from croupier.core.market.filling import Claimant
from croupier.core.market.sensing import Sample
from croupier.core.market.terms import Class
from croupier.core.market.units import MICROS, SECOND

PATIENCE: Final[Mapping[Class, int]] = {"latency": 0, "elastic": 60}
"""Seconds that work may wait without being late."""
PERIODS: Final = 10
"""Of 100 ms in a second."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A pod of the node; `request` and `limit` in quanta are what a careful owner would have written."""

    name: str
    book: Class
    request: int
    limit: int


@dataclass(slots=True)
class Meter:
    """What a pod's cgroup counts, in microseconds, and the work it still has to do."""

    queue: deque[tuple[int, int]] = field(default_factory=deque)
    """(second it came, how much), the oldest first."""
    waiting: int = 0
    """All of it."""
    usage: int = 0
    throttled: int = 0
    periods: int = 0
    throttled_periods: int = 0

    def come(self, second: int, work: int) -> None:
        if work:
            self.queue.append((second, work))
            self.waiting += work

    def work_off(self, served: int, before: int) -> int:
        """The oldest first; returns how much of it had come before that second."""
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

    def sample(self, second: int, limit: int | None) -> Sample:
        quota = None if limit is None else limit * MICROS // PERIODS
        return Sample(
            second * SECOND, self.usage, self.throttled, self.periods, self.throttled_periods, quota
        )


@dataclass(frozen=True, slots=True)
class Second:
    """What happened to one pod, in microseconds of CPU."""

    served: int
    late: int
    """Of what was served, the work that had waited too long."""
    throttled: bool
    """Its own limit kept it from more."""


class Kernel:
    def __init__(self, tenants: Sequence[Tenant], capacity: int) -> None:
        self._tenants = tenants
        self._capacity = capacity * MICROS
        self._second = 0
        self.meters: Mapping[str, Meter] = {tenant.name: Meter() for tenant in tenants}

    def run(self, arriving: Mapping[str, int], limits: Mapping[str, int | None]) -> dict[str, Second]:
        """A second with so much new work each, under these limits."""
        self._second += 1
        claims, most = [], {}
        for tenant in self._tenants:
            limit = limits[tenant.name]
            most[tenant.name] = self._capacity if limit is None else limit * MICROS
            meter = self.meters[tenant.name]
            meter.come(self._second, arriving[tenant.name])
            high = min(meter.waiting, most[tenant.name])
            claims.append(Claimant(tenant.name, 0, high, max(1, tenant.request)))
        served = filling.fill(claims, self._capacity).amounts
        return {
            tenant.name: self._count(tenant, got, most[tenant.name])
            for tenant, got in zip(self._tenants, served, strict=True)
        }

    def _count(self, tenant: Tenant, served: int, most: int) -> Second:
        meter = self.meters[tenant.name]
        wanted = meter.waiting
        late = meter.work_off(served, before=self._second - PATIENCE[tenant.book])
        throttled = served == most < min(wanted, self._capacity)
        if served:
            meter.periods += PERIODS
        if throttled:
            # Every CPU that a thread of it could run on counts the whole wait, as the kernel does.
            threads = -(-min(wanted, self._capacity) // SECOND)
            meter.throttled_periods += PERIODS
            meter.throttled += max(0, threads * SECOND - served)
        return Second(served, late, throttled)
