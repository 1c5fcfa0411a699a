"""A simulated node for ticks: pods with a CPU demand, and a kubelet that applies limits with a delay."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from croupier.core.market import terms, ticking
from croupier.core.market.books import Node
from croupier.core.market.policy import Policy
from croupier.core.market.seen import Decision, Move, Observation, Pod, Round, State
from croupier.core.market.sensing import Sample
from croupier.core.market.terms import Shape
from croupier.core.market.units import MICROS, SECOND


@dataclass
class Guest:
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

    def seen(self, at: int) -> Pod:
        annotations = {
            f"mbcas.io/{name.replace('_', '-')}": value for name, value in self.annotations.items()
        }
        counters = (self._usage, self._throttled, self._periods, self._throttled_periods)
        sample = Sample(at, *counters, self.limit * MICROS // 10)
        shape = Shape("team", self.request, self.original, labels=self.labels, annotations=annotations)
        return Pod(
            key=f"team/{self.name}",
            uid=self.uid,
            shape=shape,
            limit=self.limit,
            readings={"main": sample if self.readable else None},
            desired=self.desired,
            applied=self.limit,
        )


class Floor:
    """Runs one tick per second; a written limit is applied `lag` seconds later."""

    def __init__(
        self, *guests: Guest, capacity: int = 800, policy: Policy | None = None, lag: int = 1
    ) -> None:
        self.guests = {guest.name: guest for guest in guests}
        self.node = Node(capacity)
        self.policy = policy or Policy()
        self.state = State()
        self.second = 0
        self.lag = lag
        self.writes = True
        self.refused: set[str] = set()
        """Pods whose limit cannot be written."""
        self.history: list[tuple[int, Move]] = []
        self._due: list[tuple[int, str, str, int]] = []
        self.last: Round | None = None

    @property
    def now(self) -> int:
        return self.second * SECOND

    def observe(self) -> Observation:
        return Observation(self.node, tuple(guest.seen(self.now) for guest in self.guests.values()))

    def tick(self) -> Round:
        self.second += 1
        for guest in self.guests.values():
            guest.live()
        for due in [write for write in self._due if write[0] <= self.second]:
            self._due.remove(due)
            if due[1] in self.guests and self.guests[due[1]].uid == due[2]:
                self.guests[due[1]].limit = due[3]
        done = ticking.tick(self.state, self.observe(), self.policy, self.now)
        self.state, self.last = done.state, done
        if self.writes:
            for move in moves(done.decisions):
                self._write(move)
        return done

    def _write(self, move: Move) -> None:
        guest = self.guests[move.key.removeprefix("team/")]
        if guest.name in self.refused:
            return
        guest.desired = move.limit
        self.history.append((self.second, move))
        self._due.append((self.second + self.lag, guest.name, guest.uid, move.limit))

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.tick()

    def restart_agent(self) -> None:
        self.state = State()

    def moved(self, name: str) -> list[tuple[int, int]]:
        """Its limits and when they were decided, the oldest first."""
        return [(second, move.limit) for second, move in self.history if move.key == f"team/{name}"]

    def said(self, name: str) -> str:
        assert self.last is not None
        decisions = self.last.decisions
        return next(decision.sentence for decision in decisions if decision.key == f"team/{name}")


def moves(decisions: Iterable[Decision]) -> list[Move]:
    return [decision for decision in decisions if isinstance(decision, Move)]


def held(env: Floor) -> int:
    """The sum of max(desired, applied)."""
    return sum(max(guest.desired or 0, guest.limit) for guest in env.guests.values())


STRICT = Policy(strict=True, target=1000)
