"""How much there is to sell in each of a node's two books, and how far latency pods may be overcommitted.

A limit is not a reservation. Latency pods need theirs for a moment and seldom together, so their limits may
sum to a multiple of the node; a market that held them to the capacity would make them late. Elastic pods
use all they get, so theirs must fit into what is really free: the part of the node that shall be used, less
what everybody else uses.

The factor follows what happened. It rises while latency pods are kept below what they ask for although the
node is not full, because then the limit is the only thing in the way; it falls while the node is full,
because then limits promise CPU that is not there, and one runaway pod could take it from the others.
"""

from dataclasses import dataclass
from typing import Final

from croupier.core.market.policy import Policy
from croupier.core.market.units import MICROS, SECOND

STEP: Final = 250
"""What the factor gains at once, in thousandths;"""
FALL: Final = 875
"""what is left of it after a loss;"""
EVERY: Final = 10 * SECOND
"""and how often it may change."""
FULL: Final = 950
"""Thousandths of the capacity from which on a node counts as full."""


@dataclass(frozen=True, slots=True)
class Node:
    """CPU of the node: quanta of capacity, and millionths of a CPU that are used."""

    capacity: int
    other_requests: int = 0
    """Quanta that pods which are not in the observation ask for."""
    other_usage: int = 0
    """What they, and everything else on the node, use."""


@dataclass(frozen=True, slots=True)
class Factor:
    thousandths: int
    changed: int
    """When."""


def strict_supply(node: Node, policy: Policy) -> int:
    """Nothing measured is in it, so that it does not shrink under those who have been served."""
    return max(0, node.capacity * policy.target // 1000 - node.other_requests)


def latency_supply(node: Node, factor: Factor) -> int:
    return node.capacity * factor.thousandths // 1000


def elastic_supply(node: Node, latency_usage: int, policy: Policy) -> int:
    used = -(-(latency_usage + node.other_usage) // MICROS)
    return max(0, node.capacity * policy.target // 1000 - used)


def begin(policy: Policy, now: int) -> Factor:
    """In the middle, by multiples: as far from the least as from the most."""
    middle = policy.least_factor
    while middle * middle < policy.least_factor * policy.most_factor:
        middle += STEP
    return Factor(min(middle, policy.most_factor), now)


def adapt(factor: Factor, usage: int, *, node: Node, wanting: bool, policy: Policy, now: int) -> Factor:
    """`usage` is of everybody; `wanting`: latency pods are held back by the book."""
    if now - factor.changed < EVERY:
        return factor
    full = usage * 1000 >= node.capacity * MICROS * FULL
    if full:
        moved = max(policy.least_factor, factor.thousandths * FALL // 1000)
    elif wanting:
        moved = min(policy.most_factor, factor.thousandths + STEP)
    else:
        return factor
    return Factor(moved, now) if moved != factor.thousandths else factor
