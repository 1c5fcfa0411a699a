"""A simulated node for ticks: pods with a CPU demand, and a kubelet that applies limits with a delay."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from croupier.core.market import terms, ticking
from croupier.core.market.cpu_supply import NodeCPU
from croupier.core.market.estimation import CPUSample
from croupier.core.market.model import (
    MarketDecision,
    MarketPod,
    MarketState,
    NodeObservation,
    SetLimit,
    TickResult,
)
from croupier.core.market.policy import MarketPolicy
from croupier.core.market.terms import PodShape
from croupier.core.market.units import MICROS, SECOND


@dataclass
class MarketTestPod:
    """A pod; `wants` is its demand in quanta; annotations are given without the prefix `mbcas.io/`."""

    name: str
    wants: int = 0
    request: int = 10
    limit: int = 100
    labels: dict[str, str] = field(default_factory=lambda: {terms.MANAGED: "true"})
    annotations: dict[str, str] = field(default_factory=dict)
    original: int = 0
    desired: int | None = None
    readable: bool = True
    uid: str = ""
    _usage: int = 0
    _throttled: int = 0
    _periods: int = 0
    _throttled_periods: int = 0

    def __post_init__(self) -> None:
        self.original = self.original or self.limit
        self.uid = self.uid or self.name

    def live(self) -> None:
        """Advance the counters by one second."""
        self._usage += min(self.wants, self.limit) * MICROS
        self._periods += 10
        if self.wants > self.limit:
            self._throttled_periods += 10
            self._throttled += (self.wants - self.limit) * MICROS

    def seen(self, at: int) -> MarketPod:
        annotations = {
            f"mbcas.io/{name.replace('_', '-')}": value for name, value in self.annotations.items()
        }
        counters = (self._usage, self._throttled, self._periods, self._throttled_periods)
        sample = CPUSample(at, *counters, self.limit * MICROS // 10)
        shape = PodShape("team", self.request, self.original, labels=self.labels, annotations=annotations)
        return MarketPod(
            key=f"team/{self.name}",
            uid=self.uid,
            shape=shape,
            limit=self.limit,
            readings={"main": sample if self.readable else None},
            desired=self.desired,
            applied=self.limit,
        )


class MarketEnv:
    """Runs one tick per second; a written limit is applied `lag` seconds later."""

    def __init__(
        self, *pods: MarketTestPod, capacity: int = 800, policy: MarketPolicy | None = None, lag: int = 1
    ) -> None:
        self.pods = {guest.name: guest for guest in pods}
        self.node = NodeCPU(capacity)
        self.policy = policy or MarketPolicy()
        self.state = MarketState()
        self.second = 0
        self.lag = lag
        self.writes = True
        self.refused: set[str] = set()
        """Pods whose limit cannot be written."""
        self.history: list[tuple[int, SetLimit]] = []
        self._due: list[tuple[int, str, str, int]] = []
        self.last: TickResult | None = None

    @property
    def now(self) -> int:
        return self.second * SECOND

    def observe(self) -> NodeObservation:
        return NodeObservation(self.node, tuple(guest.seen(self.now) for guest in self.pods.values()))

    def tick(self) -> TickResult:
        self.second += 1
        for guest in self.pods.values():
            guest.live()
        for due in [write for write in self._due if write[0] <= self.second]:
            self._due.remove(due)
            if due[1] in self.pods and self.pods[due[1]].uid == due[2]:
                self.pods[due[1]].limit = due[3]
        done = ticking.tick(self.state, self.observe(), self.policy, self.now)
        self.state, self.last = done.state, done
        if self.writes:
            for move in moves(done.decisions):
                self._write(move)
        return done

    def _write(self, move: SetLimit) -> None:
        guest = self.pods[move.key.removeprefix("team/")]
        if guest.name in self.refused:
            return
        guest.desired = move.limit
        self.history.append((self.second, move))
        self._due.append((self.second + self.lag, guest.name, guest.uid, move.limit))

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.tick()

    def restart_agent(self) -> None:
        self.state = MarketState()

    def moved(self, name: str) -> list[tuple[int, int]]:
        """Its limits and when they were decided, the oldest first."""
        return [(second, move.limit) for second, move in self.history if move.key == f"team/{name}"]

    def said(self, name: str) -> str:
        assert self.last is not None
        decisions = self.last.decisions
        return next(decision.sentence for decision in decisions if decision.key == f"team/{name}")


def moves(decisions: Iterable[MarketDecision]) -> list[SetLimit]:
    return [decision for decision in decisions if isinstance(decision, SetLimit)]


def held(env: MarketEnv) -> int:
    """The sum of max(desired, applied)."""
    return sum(max(guest.desired or 0, guest.limit) for guest in env.pods.values())


STRICT = MarketPolicy(strict=True, target=1000)
