"""The values of the market: the observation of a node, the state between ticks, and the decisions.

Everything that must survive a restart of the agent is observed at every tick: the original, the desired and
the applied limit of a pod. The state holds only what a restarted agent can do without.
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
    """The sum of the CPU limits in its spec."""
    readings: Mapping[str, Sample | None]
    """By container; None where the counters could not be read."""
    desired: int | None = None
    """The limit in its PodAllocation, if there is one."""
    applied: int | None = None
    """The limit that the kubelet reports."""


@dataclass(frozen=True, slots=True)
class Observation:
    node: Node
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """A limit that was decided and whose write has not been observed yet."""

    limit: int
    at: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest demand with headroom in this window and in the previous one."""

    now: int = 0
    before: int = 0
    since: int = 0

    @property
    def most(self) -> int:
        return max(self.now, self.before)


@dataclass(frozen=True, slots=True)
class Record:
    """The state of one pod between ticks."""

    history: History
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    peak: Peak = Peak()
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class State:
    """`records` are by pod UID, so that a recreated pod starts without a record."""

    records: Mapping[str, Record] = field(default_factory=dict)
    factor: Factor | None = None
    tokens: int = 0
    """When the node's token bucket is full again."""


@dataclass(frozen=True, slots=True)
class Move:
    """Set `desiredCPULimit` to `limit`; repeated every tick until the write is observed."""

    key: str
    uid: str
    before: int
    limit: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the limit; `target` is the limit that the clearing gives it."""

    key: str
    uid: str
    limit: int
    target: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Alone:
    """The market does not manage the pod."""

    key: str
    uid: str
    word: str
    sentence: str


Decision: TypeAlias = Move | Keep | Alone


@dataclass(frozen=True, slots=True)
class Round:
    """`books` are by name: latency and elastic, or strict."""

    state: State
    decisions: tuple[Decision, ...]
    books: Mapping[str, Clearing]
