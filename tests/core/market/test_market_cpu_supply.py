"""The CPU that each book may divide, and the overcommit factor within its bounds."""

import pytest

from croupier.core.market import cpu_supply
from croupier.core.market.cpu_supply import FACTOR_INTERVAL, NodeCPU, OvercommitFactor
from croupier.core.market.policy import MarketPolicy
from croupier.core.market.units import MICROS

POLICY = MarketPolicy(target=900, min_factor=2000, max_factor=8000)
NODE = NodeCPU(800, other_requests=120, other_usage=50 * MICROS)


def test_the_strict_supply_is_the_target_without_the_requests_of_others():
    assert cpu_supply.strict_supply(NODE, POLICY) == 720 - 120
    assert cpu_supply.strict_supply(NodeCPU(800, other_requests=900), POLICY) == 0


def test_the_latency_supply_is_the_capacity_times_the_factor():
    assert cpu_supply.latency_supply(NODE, OvercommitFactor(2500, 0)) == 2000


def test_the_elastic_supply_is_what_usage_leaves_of_the_target():
    assert cpu_supply.elastic_supply(NODE, 100 * MICROS, POLICY) == 720 - 150
    assert cpu_supply.elastic_supply(NODE, 100 * MICROS + 1, POLICY) == 720 - 151, "usage is rounded up"
    assert cpu_supply.elastic_supply(NODE, 900 * MICROS, POLICY) == 0


FIRST = {
    "the geometric mean": (2000, 8000, 4000),
    "in whole steps": (1000, 3000, 1750),
    "not above the maximum": (1900, 2000, 2000),
    "the only one": (3000, 3000, 3000),
}


@pytest.mark.parametrize(("lowest", "highest", "expected"), FIRST.values(), ids=FIRST)
def test_the_first_factor(lowest, highest, expected):
    policy = MarketPolicy(min_factor=lowest, max_factor=highest)

    assert cpu_supply.initial_factor(policy, 7) == OvercommitFactor(expected, 7)


FULL = 760 * MICROS
CHANGES = {
    "it rises while pods want more": (4000, FULL - 1, True, FACTOR_INTERVAL, 4250),
    "not before the interval is over": (4000, FULL - 1, True, FACTOR_INTERVAL - 1, None),
    "not above the maximum": (7900, FULL - 1, True, FACTOR_INTERVAL, 8000),
    "it stays at the maximum": (8000, FULL - 1, True, FACTOR_INTERVAL, None),
    "it stays while no pod wants more": (4000, FULL - 1, False, FACTOR_INTERVAL, None),
    "it falls at 95 % usage": (4000, FULL, True, FACTOR_INTERVAL, 3500),
    "it falls although no pod wants more": (4000, FULL, False, FACTOR_INTERVAL, 3500),
    "not below the minimum": (2100, FULL, True, FACTOR_INTERVAL, 2000),
    "it stays at the minimum": (2000, FULL, True, FACTOR_INTERVAL, None),
}


@pytest.mark.parametrize(("factor", "usage", "wanting", "after", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_factor(factor, usage, wanting, after, expected):
    before = OvercommitFactor(factor, 5)

    changed = cpu_supply.adapt_factor(before, usage, node=NODE, wanting=wanting, policy=POLICY, now=5 + after)

    assert changed == (before if expected is None else OvercommitFactor(expected, 5 + after))
