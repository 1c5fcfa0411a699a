"""Messages agree with their numbers: one node needs, two nodes need."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from croupier.cli import terminal
from croupier.core.explanation import card_outcomes
from croupier.core.installation import diagnosis_scheduling, uninstall_plan
from croupier.core.installation.diagnosis_scheduling import SchedulingFacts
from croupier.core.model import name_list
from croupier.core.model.card_request import CardShares

MESSAGES: dict[str, tuple[Callable[[int], str], str, str]] = {
    "a number": (lambda n: name_list.counted(n, "node"), "1 node", "2 nodes"),
    "a part": (lambda n: name_list.part_of(1, n, "card"), "1 of 1 card", "1 of 2 cards"),
    "a verb": (name_list.be, "is", "are"),
    "pods elsewhere": (name_list.pods_elsewhere, "1 pod of another namespace", "2 pods of other namespaces"),
    "the command line": (lambda n: terminal.plural(n, "holder"), "1 holder", "2 holders"),
    "a request": (lambda n: str(CardShares(n, 50)), "50 % of 1 card", "50 % of 2 cards"),
    "holders": (
        lambda n: card_outcomes.named_holders([f"team/{name}/uid" for name in "ab"[:n]]),
        "team/a has",
        "team/a, team/b have",
    ),
    "objects of a CRD": (lambda n: uninstall_plan.definition("x", n).what, "1 object", "2 objects"),
    "NodeReservations": (
        lambda n: diagnosis_scheduling.scheduling(SchedulingFacts("extender", n))[0].what,
        "extender keeps the ledger in memory, but 1 NodeReservation exists, too",
        "extender keeps the ledger in memory, but 2 NodeReservations exist, too",
    ),
}


@pytest.mark.parametrize(("message", "one", "two"), MESSAGES.values(), ids=MESSAGES)
def test_one_and_two(message, one, two):
    assert (message(1), message(2)) == (one, two)


def test_a_plural_without_an_s_and_large_numbers():
    assert name_list.counted(0, "copy", "copies") == "0 copies"
    assert name_list.counted(1000, "node") == "1,000 nodes"


OWN_PLURAL = re.compile(r"""['"]s?['"] if .*else ['"]s?['"]\}""")


def test_there_is_one_function_for_plurals():
    source = Path(name_list.__file__).parents[3]
    found = [
        f"{file.relative_to(source)}:{number}"
        for file in source.rglob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if OWN_PLURAL.search(line)
    ]
    assert found == []
