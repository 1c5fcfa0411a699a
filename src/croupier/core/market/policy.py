"""The settings of the CPU market; the simulation supports the defaults (docs/market.md).

Ratios are in thousandths, times in microseconds, amounts in quanta: integers, as everywhere in the market.
"""

from dataclasses import dataclass, field
from typing import Final

from croupier.core.market.units import MINUTE, SECOND
from croupier.core.model.namespaces import DEFAULT_NAMESPACE

PROTECTED_NAMESPACES: Final = frozenset({"kube-system", DEFAULT_NAMESPACE})


@dataclass(frozen=True, slots=True)
class ResizeRate:
    """A token bucket: `burst` resizes at once, then one per `every`."""

    burst: int
    every: int


@dataclass(frozen=True, slots=True)
class ChurnPolicy:
    """How often limits may change. Every change takes about six writes to the API server."""

    up_after: int = 10 * SECOND
    """Minimum time from the last change to a raise."""
    down_after: int = 60 * SECOND
    """Minimum time from the last change to a decrease."""
    quiet: int = 60 * SECOND
    """Minimum time from throttling or a container start to a decrease."""
    up_band: int = 300
    """Minimum size of a raise, in thousandths of the limit."""
    down_band: int = 400
    """Minimum size of a decrease, in thousandths of the limit."""
    pod: ResizeRate = ResizeRate(burst=10, every=6 * MINUTE)
    node: ResizeRate = ResizeRate(burst=40, every=2 * SECOND)


@dataclass(frozen=True, slots=True)
class MarketPolicy:
    strict: bool = False
    """One book for both classes; the sum of the limits never exceeds its supply."""
    target: int = 900
    """Target usage, in thousandths of the node's capacity."""
    latency_headroom: int = 2000
    """Limit per CPU of demand for latency pods."""
    elastic_headroom: int = 1250
    """Limit per CPU of demand for elastic pods."""
    min_factor: int = 2000
    """Lower bound of the overcommit factor: the sum of latency limits per CPU of the node."""
    max_factor: int = 8000
    """Upper bound of the overcommit factor."""
    latency_peaks: int = 30 * MINUTE
    """How long a latency pod may keep its peak demand while no other pod needs the CPU."""
    elastic_peaks: int = 2 * MINUTE
    """How long an elastic pod may keep its peak demand while no other pod needs the CPU."""
    write_timeout: int = 30 * SECOND
    """How long a decision waits for its write to be observed; then the observed limit counts again."""
    churn: ChurnPolicy = field(default_factory=ChurnPolicy)
    protected: frozenset[str] = PROTECTED_NAMESPACES
    """Namespaces whose pods are never managed."""


DEFAULT: Final = MarketPolicy()
