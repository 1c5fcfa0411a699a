"""Doctor names the nodes on which containers without cards can see cards, and what to do."""

import pytest

from croupier.core.installation import diagnosis_guard
from croupier.core.installation.diagnosis_guard import GuardFacts

NODES = {"default": ["a"], "by_class": ["b"]}

GAPS = {
    "no guard": (GuardFacts(**NODES), [("warning", "node a"), ("note", "node b")], "Void or Deny"),
    "it warns": (GuardFacts("Warn", **NODES), [("warning", "node a"), ("note", "node b")], "Void or Deny"),
    "images under Deny": (GuardFacts("Deny", **NODES), [("note", "node a"), ("note", "node b")], "to Void"),
    "images under Void": (
        GuardFacts("Void", **NODES),
        [("warning", "node a"), ("note", "node b")],
        "croupier-guard-images",
    ),
    "images alone do not help": (
        GuardFacts("Warn", images=True, default=["a"]),
        [("warning", "node a")],
        "Deny",
    ),
    "nothing is left": (GuardFacts("Void", images=True, **NODES), [], ""),
    "no such node": (GuardFacts("Off"), [], ""),
}


@pytest.mark.parametrize(("facts", "expected", "remedy"), GAPS.values(), ids=GAPS)
def test_gaps_of_the_guard(facts, expected, remedy):
    problems = diagnosis_guard.guard(facts)

    assert [(problem.severity, problem.where) for problem in problems] == expected
    assert all(remedy in problem.remedy for problem in problems)
