"""What the agent sees of its node, what it remembers from tick to tick, and what comes out.

What must outlive the agent is not remembered but seen again at every tick: the limit a pod came with, the
one it is told to have, the one it has. Memory holds only what a restarted agent may do without.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from croupier.core.market.books import Factor, Node
from croupier.core.market.churn import History
from croupier.core.market.clearing import Clearing
from croupier.core.market.sensing import Estimate, Sample
from croupier.core.market.terms import Shape


@dataclass(frozen=True, slots=True)
class Pod:
    """A running pod of the node; CPU in quanta."""

    key: str
    """`namespace/name`."""
    uid: str
    shape: Shape
    limit: int
    """What its spec says now, all containers together."""
    readings: Mapping[str, Sample | None]
    """By container; None where the counters could not be read."""
    desired: int | None = None
    """What its PodAllocation says, if it has one."""
    applied: int | None = None
    """What the kubelet reports."""


@dataclass(frozen=True, slots=True)
class Observation:
    node: Node
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """A limit that was decided and is not yet seen written."""

    limit: int
    at: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that was asked for in this window and in the one before."""

    now: int = 0
    before: int = 0
    since: int = 0

    @property
    def most(self) -> int:
        return max(self.now, self.before)


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of one pod."""

    history: History
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    peak: Peak = Peak()
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class State:
    """By pod UID: another pod of the same name is another pod."""

    records: Mapping[str, Record] = field(default_factory=dict)
    factor: Factor | None = None
    tokens: int = 0
    """The moment from which the node's bucket is full again."""


@dataclass(frozen=True, slots=True)
class Move:
    """`desiredCPULimit` should become `limit`; said again until it is seen written."""

    key: str
    uid: str
    before: int
    limit: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Keep:
    """It stays as it is; `target` is what the book would give it."""

    key: str
    uid: str
    limit: int
    target: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Alone:
    """The market has no business with it."""

    key: str
    uid: str
    word: str
    sentence: str


Decision: TypeAlias = Move | Keep | Alone


@dataclass(frozen=True, slots=True)
class Round:
    """What a tick comes to. `books` by name: latency and elastic, or strict."""

    state: State
    decisions: tuple[Decision, ...]
    books: Mapping[str, Clearing]
