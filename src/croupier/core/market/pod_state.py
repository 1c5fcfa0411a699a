"""The state of each pod at the beginning of a tick: its limit, its demand and its terms."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from croupier.core.market import estimation, terms, units
from croupier.core.market.churn import ResizeHistory
from croupier.core.market.clearing import Bid
from croupier.core.market.estimation import DemandEstimate
from croupier.core.market.model import (
    DemandPeak,
    MarketPod,
    MarketState,
    NodeObservation,
    PendingWrite,
    PodRecord,
)
from croupier.core.market.policy import MarketPolicy
from croupier.core.market.terms import MarketTerms
from croupier.core.market.units import MICROS
from croupier.core.model.reason import Reason


@dataclass(frozen=True, slots=True)
class PodState:
    pod: MarketPod
    terms: MarketTerms | Reason
    record: PodRecord
    current: int
    """The last decided limit."""
    ask: int
    """Its demand with headroom, in quanta."""
    usage: int
    throttled: bool
    blind: bool

    @property
    def held(self) -> int:
        """The CPU that the pod may use until a decrease is reported as applied.

        The limit in its PodAllocation counts even after another decision, which may not have been written.
        """
        pod = self.pod
        return max(self.current, pod.limit, pod.desired or 0, pod.applied or 0)

    @property
    def participates(self) -> bool:
        return isinstance(self.terms, MarketTerms) and not self.terms.paused and not self.blind

    @property
    def others_usage(self) -> int:
        """Its usage if it does not take part; without readings, everything it may use."""
        return self.held * MICROS if self.blind else self.usage

    @property
    def others_claim(self) -> int:
        """Its part of the strict supply if it does not take part; its request if it never took part."""
        traded = isinstance(self.terms, MarketTerms) or self.pod.desired is not None
        return self.held if traded else self.pod.shape.request

    @property
    def idle_floor(self) -> int:
        """The unused part of its floor. The limit stays, but other pods may use the CPU until it is needed.

        When the pod becomes busy again, the kernel serves its request first.
        """
        return max(0, self.terms.floor - self.ask) if isinstance(self.terms, MarketTerms) else 0

    def bid(self) -> Bid:
        """A pod keeps its recent peak, and a latency pod its original limit, while the CPU is not needed."""
        assert isinstance(self.terms, MarketTerms)  # noqa: S101  only pods that take part bid
        original = self.pod.shape.original if self.terms.book == "latency" else 0
        keep = max(original, self.record.peak.most)
        return Bid(self.pod.key, self.ask, self.terms.weight, self.terms.floor, self.terms.cap, keep)


def pod_states(state: MarketState, seen: NodeObservation, policy: MarketPolicy, now: int) -> list[PodState]:
    """Sorted by name, so that the result does not depend on the order of the observation."""
    return [
        _pod_state(pod, state.records.get(pod.uid), node_capacity=seen.node.capacity, policy=policy, now=now)
        for pod in sorted(seen.pods, key=lambda pod: (pod.key, pod.uid))
    ]


def _pod_state(
    pod: MarketPod, known: PodRecord | None, *, node_capacity: int, policy: MarketPolicy, now: int
) -> PodState:
    allowed = terms.read(pod.shape, capacity=node_capacity, protected=policy.protected)
    before = known or PodRecord(ResizeHistory(started=now), peak=DemandPeak(since=now))
    target = allowed.throttle_target if isinstance(allowed, MarketTerms) else 0
    estimates = {
        name: estimation.estimate(before.estimates.get(name, estimation.NO_ESTIMATE), reading, target=target)
        for name, reading in pod.readings.items()
    }
    samples = [(estimate.sample, estimate.throttling) for estimate in estimates.values()]
    throttled_at = [sample.at for sample, throttling in samples if sample and throttling > target]
    ask = _ask(estimates, allowed, policy)
    order = _pending_write(before.pending_write, pod, policy, now)
    current = order.limit if order else pod.desired if pod.desired is not None else pod.limit
    return PodState(
        pod=pod,
        terms=allowed,
        record=PodRecord(
            _history(before.history, estimates, throttled_at),
            estimates,
            _peak(before.peak, ask, window=_window(allowed, policy), now=now),
            order,
        ),
        current=current,
        ask=ask,
        usage=sum(estimate.usage for estimate in estimates.values()),
        throttled=bool(throttled_at),
        blind=not estimates or any(estimate.blind(now) for estimate in estimates.values()),
    )


def _ask(estimates: Mapping[str, DemandEstimate], allowed: MarketTerms | Reason, policy: MarketPolicy) -> int:
    elastic = isinstance(allowed, MarketTerms) and allowed.book == "elastic"
    headroom = policy.elastic_headroom if elastic else policy.latency_headroom
    return units.covering_quanta(sum(estimate.demand for estimate in estimates.values()) * headroom // 1000)


def _pending_write(
    pending_write: PendingWrite | None, pod: MarketPod, policy: MarketPolicy, now: int
) -> PendingWrite | None:
    """The pending write, until it is observed or timed out; the write may have failed."""
    if (
        pending_write is None
        or pod.desired == pending_write.limit
        or now - pending_write.at > policy.write_timeout
    ):
        return None
    return pending_write


def _history(
    before: ResizeHistory, estimates: Mapping[str, DemandEstimate], throttled_at: list[int]
) -> ResizeHistory:
    resets = [estimate.sample for estimate in estimates.values() if estimate.doubt == "reset"]
    restarts = [sample.at for sample in resets if sample]
    throttled = max([*throttled_at, *([] if before.throttled is None else [before.throttled])], default=None)
    return replace(before, throttled=throttled, started=max([before.started, *restarts]))


def _window(allowed: MarketTerms | Reason, policy: MarketPolicy) -> int:
    elastic = isinstance(allowed, MarketTerms) and allowed.book == "elastic"
    return policy.elastic_peaks if elastic else policy.latency_peaks


def _peak(before: DemandPeak, ask: int, *, window: int, now: int) -> DemandPeak:
    if now - before.since >= window:
        return DemandPeak(ask, before.now, now)
    return replace(before, now=max(before.now, ask))
