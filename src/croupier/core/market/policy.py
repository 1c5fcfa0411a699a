"""What a cluster may set about its market, with the defaults the simulation speaks for (docs/market.md).

Shares are in thousandths, times in microseconds, amounts in quanta: whole numbers, as everywhere in the
market.
"""

from dataclasses import dataclass, field
from typing import Final

from croupier.core.market.units import MINUTE, SECOND

PROTECTED: Final = frozenset({"kube-system", "d8-gpu-operator"})


@dataclass(frozen=True, slots=True)
class Rate:
    """So many at once, then one `every` so often."""

    burst: int
    every: int


@dataclass(frozen=True, slots=True)
class Churn:
    """How often limits may move. Every move is about six writes to the API server."""

    up_after: int = 10 * SECOND
    """No raise so soon after the last move."""
    down_after: int = 60 * SECOND
    """No decrease so soon after the last move."""
    quiet: int = 60 * SECOND
    """No decrease so soon after throttling or a start."""
    up_band: int = 300
    """Thousandths of the limit that a raise must be worth."""
    down_band: int = 400
    """Thousandths of the limit that a decrease must be worth."""
    pod: Rate = Rate(burst=10, every=6 * MINUTE)
    node: Rate = Rate(burst=40, every=2 * SECOND)


@dataclass(frozen=True, slots=True)
class Policy:
    strict: bool = False
    """One book for both classes, and the limits together never exceed its supply."""
    target: int = 900
    """Of the node's capacity: what shall be used, and no more."""
    latency_headroom: int = 2000
    """A latency pod's limit for each CPU it asks for."""
    elastic_headroom: int = 1250
    """An elastic pod's."""
    least_factor: int = 2000
    """Limits of latency pods together, for each CPU of the node: never held to less than this,"""
    most_factor: int = 8000
    """and never let above this."""
    latency_peaks: int = 30 * MINUTE
    """How long a latency pod may keep what it once needed, while nobody else needs it."""
    elastic_peaks: int = 2 * MINUTE
    """How long an elastic pod may."""
    patience: int = 30 * SECOND
    """For what was decided to be seen written; after that what is seen counts again."""
    churn: Churn = field(default_factory=Churn)
    protected: frozenset[str] = PROTECTED
    """Namespaces whose pods are never touched."""


DEFAULT: Final = Policy()
