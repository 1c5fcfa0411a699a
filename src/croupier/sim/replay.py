"""A trace played on one node, once for each contender, and what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from croupier.core.market.policy import Policy
from croupier.core.market.units import CPU, MICROS, SECOND
from croupier.sim.contenders import Contender, Fixed, Market, Recommender
from croupier.sim.node import Kernel, Tenant
from croupier.sim.trace import Trace, Workload

FULL = 60
"""Percent of a node that an average moment uses when nobody says how large it is."""
REQUESTS = 80
"""Percent of a node that requests may take together."""


@dataclass(frozen=True, slots=True)
class Minute:
    """What one minute came to; the last one may be shorter. CPU in microseconds."""

    work: int = 0
    late: int = 0
    throttled: int = 0
    """Pod-seconds."""
    slack: int = 0
    resizes: int = 0
    seconds: int = 0


@dataclass(frozen=True, slots=True)
class Score:
    name: str
    pods: int
    seconds: int
    late_latency: float
    """Percent of the work of latency pods that was not done in the second it came."""
    late_elastic: float
    throttled: float
    """Percent of pod-seconds in which a limit kept a pod from CPU it wanted."""
    undone: float
    """Percent of all work still waiting at the end."""
    slack: float | None
    """CPU that limits allow beyond what is used, on average; None without limits."""
    committed: float | None
    """The largest sum of limits, for each CPU of the node."""
    resizes: float
    """Of a pod in an hour."""
    minutes: tuple[Minute, ...]


def default_capacity(trace: Trace) -> int:
    """In whole CPUs."""
    total = sum(sum(one.demand) for one in trace.workloads) / trace.seconds
    return max(1, -(-int(total) * 100 // (FULL * SECOND)))


def tenants(trace: Trace, capacity: int) -> tuple[Tenant, ...]:
    """As a careful owner sets them who has seen the whole trace: request the mean, limit the 95th percentile.

    Requests are cut in proportion where the scheduler would not have let them all in.
    """
    means = {one.name: -(-sum(one.demand) // (trace.seconds * MICROS)) for one in trace.workloads}
    room, asked = capacity * CPU * REQUESTS // 100, sum(means.values())
    return tuple(_tenant(one, means[one.name], min(room, asked), asked) for one in trace.workloads)


def _tenant(one: Workload, mean: int, room: int, asked: int) -> Tenant:
    request = max(1, mean * room // max(1, asked))
    limit = -(-sorted(one.demand)[len(one.demand) * 95 // 100] // MICROS)
    return Tenant(one.name, one.book, request, max(request, limit))


def contenders(settled: Sequence[Tenant], capacity: int, policy: Policy) -> list[Contender]:
    strict = Policy(strict=True, target=policy.target, churn=policy.churn)
    quanta = capacity * CPU
    return [
        Fixed("no limits", {one.name: None for one in settled}),
        Fixed("static limits", {one.name: one.limit for one in settled}),
        Recommender(settled),
        Market("market", settled, capacity=quanta, policy=policy),
        Market("market, strict", settled, capacity=quanta, policy=strict),
    ]


def compare(
    trace: Trace, capacity: int, *, policy: Policy | None = None, told: Callable[[str], None] = lambda _: None
) -> list[Score]:
    """`capacity` in whole CPUs; `told` hears who plays next."""
    settled = tenants(trace, capacity)
    scores = []
    for contender in contenders(settled, capacity, policy or Policy()):
        told(contender.name)
        scores.append(_Play(trace, settled, capacity, contender).score())
    return scores


class _Play:
    """One contender on the virtual clock."""

    def __init__(self, trace: Trace, settled: Sequence[Tenant], capacity: int, contender: Contender) -> None:
        self._trace = trace
        self._settled = settled
        self._capacity = capacity
        self._contender = contender
        self._kernel = Kernel(settled, capacity * CPU)
        self._work = {"latency": 0, "elastic": 0}
        self._late = {"latency": 0, "elastic": 0}
        self._largest = 0
        self._minutes: list[Minute] = []

    def score(self) -> Score:
        for second in range(self._trace.seconds):
            if second % 60 == 0:
                self._minutes.append(Minute())
            self._minutes[-1] = self._second(second, self._minutes[-1])
        limited = None not in self._contender.limits.values()
        work = max(1, sum(self._work.values()))
        undone = sum(meter.waiting for meter in self._kernel.meters.values())
        pods, seconds = len(self._settled), self._trace.seconds
        total = [sum(column) for column in zip(*map(_columns, self._minutes), strict=True)]
        return Score(
            name=self._contender.name,
            pods=pods,
            seconds=seconds,
            late_latency=100 * self._late["latency"] / max(1, self._work["latency"]),
            late_elastic=100 * self._late["elastic"] / max(1, self._work["elastic"]),
            throttled=100 * total[0] / (pods * seconds),
            undone=100 * undone / work,
            slack=total[1] / (seconds * SECOND) if limited else None,
            committed=self._largest / (self._capacity * CPU) if limited else None,
            resizes=3600 * total[2] / (pods * seconds),
            minutes=tuple(self._minutes),
        )

    def _second(self, second: int, minute: Minute) -> Minute:
        limits = dict(self._contender.limits)
        arriving = {one.name: one.demand[second] for one in self._trace.workloads}
        passed = self._kernel.run(arriving, limits)
        for tenant in self._settled:
            self._work[tenant.book] += arriving[tenant.name]
            self._late[tenant.book] += passed[tenant.name].late
        allowed = sum(limit for limit in limits.values() if limit is not None)
        self._largest = max(self._largest, allowed)
        served = sum(one.served for one in passed.values())
        return Minute(
            work=minute.work + sum(arriving.values()),
            late=minute.late + sum(one.late for one in passed.values()),
            throttled=minute.throttled + sum(one.throttled for one in passed.values()),
            slack=minute.slack + max(0, allowed * MICROS - served),
            resizes=minute.resizes + self._contender.look(second + 1, self._kernel.meters),
            seconds=minute.seconds + 1,
        )


def _columns(minute: Minute) -> tuple[int, int, int]:
    return minute.throttled, minute.slack, minute.resizes
