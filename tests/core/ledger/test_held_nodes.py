"""Which nodes hold cards for a pod that is not bound yet."""

import pytest

from croupier.core.ledger.held_nodes import HeldNodes

STEPS: dict[str, tuple[list[tuple[str, set[str]]], dict[str, set[str]]]] = {
    "nothing is held": ([], {"ns/a": set()}),
    "one node holds for two pods": (
        [("node-1", {"ns/a", "ns/b"})],
        {"ns/a": {"node-1"}, "ns/b": {"node-1"}, "ns/c": set()},
    ),
    "two nodes hold for one pod": (
        [("node-1", {"ns/a"}), ("node-2", {"ns/a", "ns/b"})],
        {"ns/a": {"node-1", "node-2"}, "ns/b": {"node-2"}},
    ),
    "a node replaces what it holds": (
        [("node-1", {"ns/a", "ns/b"}), ("node-1", {"ns/b", "ns/c"})],
        {"ns/a": set(), "ns/b": {"node-1"}, "ns/c": {"node-1"}},
    ),
    "one of two nodes releases": (
        [("node-1", {"ns/a"}), ("node-2", {"ns/a"}), ("node-1", set())],
        {"ns/a": {"node-2"}},
    ),
    "a node holds, releases and holds again": (
        [("node-1", {"ns/a"}), ("node-1", set()), ("node-1", {"ns/a"})],
        {"ns/a": {"node-1"}},
    ),
    "the same twice": ([("node-1", {"ns/a"}), ("node-1", {"ns/a"})], {"ns/a": {"node-1"}}),
}


@pytest.mark.parametrize(("steps", "expected"), STEPS.values(), ids=STEPS)
def test_the_nodes_of_a_holder(steps, expected):
    index = HeldNodes()
    for node, holders in steps:
        index.set(node, holders)

    assert {holder: set(index.of(holder)) for holder in expected} == expected
