"""Where each pod stands at the beginning of a tick: what it has, what it asks for, on which terms."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from croupier.core.market import sensing, terms, units
from croupier.core.market.churn import History
from croupier.core.market.clearing import Bid
from croupier.core.market.policy import Policy
from croupier.core.market.seen import Observation, Order, Peak, Pod, Record, State
from croupier.core.market.sensing import Estimate
from croupier.core.market.terms import Terms, Unfit
from croupier.core.market.units import MICROS


@dataclass(frozen=True, slots=True)
class Standing:
    pod: Pod
    terms: Terms | Unfit
    record: Record
    current: int
    """The limit it was last told to have."""
    ask: int
    """Its demand with headroom, in quanta."""
    usage: int
    throttled: bool
    blind: bool

    @property
    def held(self) -> int:
        """What it may use until a decrease is reported applied.

        What stands in its PodAllocation counts even if we decided otherwise: that may not have been written.
        """
        pod = self.pod
        return max(self.current, pod.limit, pod.desired or 0, pod.applied or 0)

    @property
    def trades(self) -> bool:
        return isinstance(self.terms, Terms) and not self.terms.paused and not self.blind

    @property
    def others_usage(self) -> int:
        """As one who does not trade: of a blind one the worst is assumed."""
        return self.held * MICROS if self.blind else self.usage

    @property
    def others_claim(self) -> int:
        """What it takes from a strict supply without trading; one that never traded, as those outside do."""
        traded = isinstance(self.terms, Terms) or self.pod.desired is not None
        return self.held if traded else self.pod.shape.request

    @property
    def idle_floor(self) -> int:
        """Of its floor, what it has no use for: not to be taken away, but others may use it meanwhile.

        When it wakes up, the kernel gives it its request first.
        """
        return max(0, self.terms.floor - self.ask) if isinstance(self.terms, Terms) else 0

    def bid(self) -> Bid:
        """What it lately needed it keeps while nobody else needs it; a latency pod what it came with, too."""
        assert isinstance(self.terms, Terms)  # noqa: S101  only those who trade bid
        original = self.pod.shape.original if self.terms.book == "latency" else 0
        keep = max(original, self.record.peak.most)
        return Bid(self.pod.key, self.ask, self.terms.weight, self.terms.floor, self.terms.cap, keep)


def of_all(state: State, seen: Observation, policy: Policy, now: int) -> list[Standing]:
    """In the order of their names, so that nothing depends on the order they were seen in."""
    return [
        _of(pod, state.records.get(pod.uid), node_capacity=seen.node.capacity, policy=policy, now=now)
        for pod in sorted(seen.pods, key=lambda pod: (pod.key, pod.uid))
    ]


def _of(pod: Pod, known: Record | None, *, node_capacity: int, policy: Policy, now: int) -> Standing:
    allowed = terms.read(pod.shape, capacity=node_capacity, protected=policy.protected)
    before = known or Record(History(started=now), peak=Peak(since=now))
    target = allowed.throttle_target if isinstance(allowed, Terms) else 0
    estimates = {
        name: sensing.estimate(before.estimates.get(name, sensing.NOTHING), reading, target=target)
        for name, reading in pod.readings.items()
    }
    held_back = [one.sample.at for one in estimates.values() if one.sample and one.throttling > target]
    ask = _ask(estimates, allowed, policy)
    order = _pending(before.order, pod, policy, now)
    current = order.limit if order else pod.desired if pod.desired is not None else pod.limit
    return Standing(
        pod=pod,
        terms=allowed,
        record=Record(
            _history(before.history, estimates, held_back),
            estimates,
            _peak(before.peak, ask, window=_window(allowed, policy), now=now),
            order,
        ),
        current=current,
        ask=ask,
        usage=sum(one.usage for one in estimates.values()),
        throttled=bool(held_back),
        blind=not estimates or any(one.blind(now) for one in estimates.values()),
    )


def _ask(estimates: Mapping[str, Estimate], allowed: Terms | Unfit, policy: Policy) -> int:
    elastic = isinstance(allowed, Terms) and allowed.book == "elastic"
    headroom = policy.elastic_headroom if elastic else policy.latency_headroom
    return units.covering(sum(one.demand for one in estimates.values()) * headroom // 1000)


def _pending(order: Order | None, pod: Pod, policy: Policy, now: int) -> Order | None:
    """What was decided counts until it is seen written; not for ever, for the write may have failed."""
    if order is None or pod.desired == order.limit or now - order.at > policy.patience:
        return None
    return order


def _history(before: History, estimates: Mapping[str, Estimate], held_back: list[int]) -> History:
    restarts = [one.sample.at for one in estimates.values() if one.sample and one.doubt == "reset"]
    throttled = max([*held_back, *([] if before.throttled is None else [before.throttled])], default=None)
    return replace(before, throttled=throttled, started=max([before.started, *restarts]))


def _window(allowed: Terms | Unfit, policy: Policy) -> int:
    elastic = isinstance(allowed, Terms) and allowed.book == "elastic"
    return policy.elastic_peaks if elastic else policy.latency_peaks


def _peak(before: Peak, ask: int, *, window: int, now: int) -> Peak:
    if now - before.since >= window:
        return Peak(ask, before.now, now)
    return replace(before, now=max(before.now, ask))
