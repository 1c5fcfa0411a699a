"""Replays a trace on one node under each limit policy and scores the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from croupier.core.market.policy import MarketPolicy
from croupier.core.market.units import CPU, MICROS, SECOND
from croupier_lab.simulator.kernel import SimulatedKernel, SimulatedPod
from croupier_lab.simulator.limit_policies import FixedLimits, LimitPolicy, MarketLimits, RecommenderLimits
from croupier_lab.simulator.trace import Trace, TraceWorkload

TARGET_USAGE = 60
"""Average usage, in percent of the node, for which the default capacity is chosen."""
MAX_REQUESTS = 80
"""Maximum sum of the requests, in percent of the node."""


@dataclass(frozen=True, slots=True)
class MinuteTotals:
    """Totals of one minute; the last one may be shorter. CPU in microseconds."""

    work: int = 0
    late: int = 0
    throttled: int = 0
    """Pod-seconds."""
    slack: int = 0
    resizes: int = 0
    seconds: int = 0


@dataclass(frozen=True, slots=True)
class ReplayScore:
    name: str
    pods: int
    seconds: int
    late_latency: float
    """Percent of the work of latency pods that was not done in the second of its arrival."""
    late_elastic: float
    throttled: float
    """Percent of pod-seconds in which a limit kept a pod from CPU it wanted."""
    undone: float
    """Percent of all work still waiting at the end."""
    slack: float | None
    """Average CPU that limits allow beyond the usage; None without limits."""
    committed: float | None
    """The largest sum of limits per CPU of the node."""
    resizes: float
    """Resizes per pod and hour."""
    minutes: tuple[MinuteTotals, ...]


def default_capacity(trace: Trace) -> int:
    """In whole CPUs."""
    total = sum(sum(workload.demand) for workload in trace.workloads) / trace.seconds
    return max(1, -(-int(total) * 100 // (TARGET_USAGE * SECOND)))


def pods_with_hindsight(trace: Trace, capacity: int) -> tuple[SimulatedPod, ...]:
    """Pods with hindsight: the request is the mean demand, the limit the 95th percentile.

    Requests are scaled down if their sum would not fit on the node.
    """
    means = {
        workload.name: -(-sum(workload.demand) // (trace.seconds * MICROS)) for workload in trace.workloads
    }
    room, asked = capacity * CPU * MAX_REQUESTS // 100, sum(means.values())
    return tuple(
        _pod_with_hindsight(workload, means[workload.name], min(room, asked), asked)
        for workload in trace.workloads
    )


def _pod_with_hindsight(workload: TraceWorkload, mean: int, room: int, asked: int) -> SimulatedPod:
    request = max(1, mean * room // max(1, asked))
    limit = -(-sorted(workload.demand)[len(workload.demand) * 95 // 100] // MICROS)
    return SimulatedPod(workload.name, workload.book, request, max(request, limit))


def limit_policies_of(
    settled: Sequence[SimulatedPod], capacity: int, policy: MarketPolicy
) -> list[LimitPolicy]:
    strict = MarketPolicy(strict=True, target=policy.target, churn=policy.churn)
    quanta = capacity * CPU
    return [
        FixedLimits("no limits", {pod.name: None for pod in settled}),
        FixedLimits("static limits", {pod.name: pod.limit for pod in settled}),
        RecommenderLimits(settled),
        MarketLimits("market", settled, capacity=quanta, policy=policy),
        MarketLimits("market, strict", settled, capacity=quanta, policy=strict),
    ]


def compare(
    trace: Trace,
    capacity: int,
    *,
    policy: MarketPolicy | None = None,
    on_policy: Callable[[str], None] = lambda _: None,
) -> list[ReplayScore]:
    """`capacity` in whole CPUs; `told` is called with the name of each policy before its replay."""
    settled = pods_with_hindsight(trace, capacity)
    scores = []
    for contender in limit_policies_of(settled, capacity, policy or MarketPolicy()):
        on_policy(contender.name)
        scores.append(_Replay(trace, settled, capacity, contender).score())
    return scores


class _Replay:
    """The replay of the trace under one policy."""

    def __init__(
        self, trace: Trace, settled: Sequence[SimulatedPod], capacity: int, contender: LimitPolicy
    ) -> None:
        self._trace = trace
        self._settled = settled
        self._capacity = capacity
        self._contender = contender
        self._kernel = SimulatedKernel(settled, capacity * CPU)
        self._work = {"latency": 0, "elastic": 0}
        self._late = {"latency": 0, "elastic": 0}
        self._largest = 0
        self._minutes: list[MinuteTotals] = []

    def score(self) -> ReplayScore:
        for second in range(self._trace.seconds):
            if second % 60 == 0:
                self._minutes.append(MinuteTotals())
            self._minutes[-1] = self._second(second, self._minutes[-1])
        limited = None not in self._contender.limits.values()
        work = max(1, sum(self._work.values()))
        undone = sum(meter.waiting for meter in self._kernel.meters.values())
        pods, seconds = len(self._settled), self._trace.seconds
        total = [sum(column) for column in zip(*map(_columns, self._minutes), strict=True)]
        return ReplayScore(
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

    def _second(self, second: int, minute: MinuteTotals) -> MinuteTotals:
        limits = dict(self._contender.limits)
        arriving = {workload.name: workload.demand[second] for workload in self._trace.workloads}
        passed = self._kernel.run(arriving, limits)
        for tenant in self._settled:
            self._work[tenant.book] += arriving[tenant.name]
            self._late[tenant.book] += passed[tenant.name].late
        allowed = sum(limit for limit in limits.values() if limit is not None)
        self._largest = max(self._largest, allowed)
        served = sum(result.served for result in passed.values())
        return MinuteTotals(
            work=minute.work + sum(arriving.values()),
            late=minute.late + sum(result.late for result in passed.values()),
            throttled=minute.throttled + sum(result.throttled for result in passed.values()),
            slack=minute.slack + max(0, allowed * MICROS - served),
            resizes=minute.resizes + self._contender.step(second + 1, self._kernel.meters),
            seconds=minute.seconds + 1,
        )


def _columns(minute: MinuteTotals) -> tuple[int, int, int]:
    return minute.throttled, minute.slack, minute.resizes
