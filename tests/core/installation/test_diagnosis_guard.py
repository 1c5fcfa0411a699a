"""Doctor names the nodes on which containers without cards can see cards, and what to do."""

import pytest

from croupier.core.installation import diagnosis_guard
from croupier.core.installation.diagnosis_guard import GuardFacts, GuardMode


def facts(mode: GuardMode = "Off", *, images: bool = False) -> GuardFacts:
    return GuardFacts(mode, images, default=["a"], by_class=["b"])


GAPS = {
    "no guard": (facts(), [("warning", "node a"), ("note", "node b")], "Void or Deny"),
    "it warns": (facts("Warn"), [("warning", "node a"), ("note", "node b")], "Void or Deny"),
    "images under Deny": (facts("Deny"), [("note", "node a"), ("note", "node b")], "to Void"),
    "images under Void": (
        facts("Void"),
        [("warning", "node a"), ("note", "node b")],
        "croupier-guard-images",
    ),
    "images alone do not help": (
        GuardFacts("Warn", images=True, default=["a"]),
        [("warning", "node a")],
        "Deny",
    ),
    "nothing is left": (facts("Void", images=True), [], ""),
    "no such node": (GuardFacts("Off"), [], ""),
}


@pytest.mark.parametrize(("seen", "expected", "remedy"), GAPS.values(), ids=GAPS)
def test_gaps_of_the_guard(seen, expected, remedy):
    problems = diagnosis_guard.guard(seen)

    assert [(problem.severity, problem.where) for problem in problems] == expected
    assert all(remedy in problem.remedy for problem in problems)
