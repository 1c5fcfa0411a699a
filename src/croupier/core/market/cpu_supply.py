"""The CPU supply of a node for each class of pods, and the overcommit factor of latency pods.

A limit is not a reservation. Latency pods need their limits briefly and seldom at the same time, so these
limits may sum to a multiple of the node's capacity; a sum within the capacity would slow them down. Elastic
pods use everything they get, so their limits must fit into the CPU that is free: the target share of the
node minus the usage of all other pods.

The overcommit factor adapts. It rises while latency pods get less than they ask for although the node is
not full, because then only the limit slows them down. It falls while the node is full, because then limits
promise CPU that does not exist, and one runaway pod could take it from the others.
"""

from dataclasses import dataclass
from typing import Final

from croupier.core.market.policy import MarketPolicy
from croupier.core.market.units import MICROS, SECOND

FACTOR_STEP: Final = 250
"""Thousandths that one increase adds to the factor."""
FACTOR_DECAY: Final = 875
"""Thousandths of the factor that remain after one decrease."""
FACTOR_INTERVAL: Final = 10 * SECOND
"""Minimum time between two changes of the factor."""
FULL_THRESHOLD: Final = 950
"""A node is full if its usage reaches this many thousandths of its capacity."""


@dataclass(frozen=True, slots=True)
class NodeCPU:
    """CPU of the node: capacity and requests in quanta, usage in millionths of a CPU."""

    capacity: int
    other_requests: int = 0
    """CPU requests of pods that are not in the observation."""
    other_usage: int = 0
    """CPU usage of these pods and of everything else on the node."""


@dataclass(frozen=True, slots=True)
class OvercommitFactor:
    thousandths: int
    changed: int
    """Time of the last change."""


def strict_supply(node: NodeCPU, policy: MarketPolicy) -> int:
    """Does not depend on measurements, so that it does not fall below limits that were granted."""
    return max(0, node.capacity * policy.target // 1000 - node.other_requests)


def latency_supply(node: NodeCPU, factor: OvercommitFactor) -> int:
    return node.capacity * factor.thousandths // 1000


def elastic_supply(node: NodeCPU, latency_usage: int, policy: MarketPolicy) -> int:
    used = -(-(latency_usage + node.other_usage) // MICROS)
    return max(0, node.capacity * policy.target // 1000 - used)


def initial_factor(policy: MarketPolicy, now: int) -> OvercommitFactor:
    """The geometric mean of the smallest and the largest factor."""
    middle = policy.min_factor
    while middle * middle < policy.min_factor * policy.max_factor:
        middle += FACTOR_STEP
    return OvercommitFactor(min(middle, policy.max_factor), now)


def adapt_factor(
    factor: OvercommitFactor, usage: int, *, node: NodeCPU, wanting: bool, policy: MarketPolicy, now: int
) -> OvercommitFactor:
    """`usage` is the usage of the whole node; `wanting`: latency pods ask for more than the supply."""
    if now - factor.changed < FACTOR_INTERVAL:
        return factor
    full = usage * 1000 >= node.capacity * MICROS * FULL_THRESHOLD
    if full:
        moved = max(policy.min_factor, factor.thousandths * FACTOR_DECAY // 1000)
    elif wanting:
        moved = min(policy.max_factor, factor.thousandths + FACTOR_STEP)
    else:
        return factor
    return OvercommitFactor(moved, now) if moved != factor.thousandths else factor
