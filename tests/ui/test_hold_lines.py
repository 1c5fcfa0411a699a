"""Who held which share of which card, from when to when."""

import asyncio
from typing import Any

import pytest

from croupier.ui import hold_lines
from croupier.ui.history_answers import HistoryAnswers, NoHistory
from croupier.ui.hold_lines import HoldLine
from croupier.ui.journal import Journal, JournalLine
from croupier.ui.rights import ALL, Rights
from croupier.ui.tables import Tables

PERCENT, EXCLUSIVE, MIG, TIME_SLICE = 1, 2, 3, 4
NAMES = {"1": ["team/job/uid", 1, 0, ""], "2": ["other/job/uid", 1, 0, ""]}


def card(*holders: tuple[int, int], mode: int = PERCENT, slots: tuple[Any, ...] = ()) -> list[Any]:
    return ["node", 0, mode, "red", 3, 0, 100, 0, list(holders), list(slots), "", "", "", [], ""]


def whole(at: float, names: dict[str, Any] = NAMES, **cards: Any) -> JournalLine:
    return JournalLine(at, {"cards": cards, "holders": names}, whole=True)


def delta(at: float, **cards: Any) -> JournalLine:
    return JournalLine(at, {"cards": cards})


def line(card_name: str, pod: str, share: str, since: float, until: float | None = None) -> HoldLine:
    return HoldLine(card_name, pod, share, since, until)


STORIES: dict[str, tuple[list[JournalLine], list[HoldLine]]] = {
    "a free card": ([whole(1, a=card())], []),
    "still held": ([whole(1, a=card((1, 40)))], [line("a", "team/job", "40 %", 1)]),
    "from and to": (
        [whole(1, a=card()), delta(2, a=card((1, 100))), delta(5, a=card())],
        [line("a", "team/job", "whole", 2, 5)],
    ),
    "another share is another line": (
        [whole(1, a=card((1, 40))), delta(3, a=card((1, 60)))],
        [line("a", "team/job", "40 %", 1, 3), line("a", "team/job", "60 %", 3)],
    ),
    "a change of another holder is no end": (
        [whole(1, a=card((1, 40))), delta(2, a=card((1, 40), (2, 10))), delta(3, a=card((1, 40)))],
        [line("a", "team/job", "40 %", 1), line("a", "other/job", "10 %", 2, 3)],
    ),
    "the card disappears": (
        [whole(1, a=card((1, 40))), delta(4, a=None)],
        [line("a", "team/job", "40 %", 1, 4)],
    ),
    "the card is missing in the next segment": (
        [whole(1, a=card((1, 40)), b=card()), whole(9, b=card())],
        [line("a", "team/job", "40 %", 1, 9)],
    ),
    "held across segments": (
        [whole(1, a=card((1, 40))), whole(300, a=card((1, 40)))],
        [line("a", "team/job", "40 %", 1)],
    ),
    "another process has other numbers": (
        [whole(1, a=card((1, 40))), whole(300, {"7": NAMES["1"]}, a=card((7, 40)))],
        [line("a", "team/job", "40 %", 1)],
    ),
    "a slot": (
        [whole(1, a=card(mode=MIG, slots=(["1g-0", "1g", 0, 1, 1], ["1g-1", "1g", 1, 1, 0])))],
        [line("a", "team/job", "MIG 1g-0", 1)],
    ),
    "slices": (
        [whole(1, a=card((1, 1), (2, 3), mode=TIME_SLICE))],
        [line("a", "other/job", "3 slices", 1), line("a", "team/job", "1 slice", 1)],
    ),
}


@pytest.mark.parametrize(("history", "expected"), STORIES.values(), ids=STORIES)
def test_lines(history, expected):
    assert hold_lines.lines(history) == expected


@pytest.mark.parametrize(("history", "expected"), STORIES.values(), ids=STORIES)
def test_one_card_and_one_pod_are_parts_of_all(history, expected):
    for name in ("a", "b"):
        assert hold_lines.lines(history, card=name) == [one for one in expected if one.card == name]
    for pod in ("team/job", "other/job"):
        assert hold_lines.lines(history, pod=pod) == [one for one in expected if one.pod == pod]


def answers(**holders: str) -> HistoryAnswers:
    """A history in which each holder has 10 % of a card, from 100 s on."""
    tables, journal = Tables("test"), Journal()
    found = HistoryAnswers(journal, tables)
    for name, holder in holders.items():
        number = tables.number("node", holder)
        tables.put("cards", name, card((number, 10)))
        tables.put("holders", str(number), [holder, 1, 0, ""])
    delta = tables.flush(100)
    assert delta is not None
    found.record(delta)
    return found


def csv(history: HistoryAnswers, rights: Rights = ALL, span: tuple[float, float] = (0, 1000)) -> list[str]:
    header, *lines = asyncio.run(history.csv(rights, *span)).splitlines()
    assert header == "card,pod,share,from,to"
    return lines


FORMULAS = ("=cmd|'/c calc'!A1", "+1+1", "-2+3", "@SUM(A1)")


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_spreadsheet_takes_no_cell_for_a_formula(formula):
    (row,) = csv(answers(**{formula: f"{formula}/pod/uid"}))
    cells = row.split(",")
    assert cells[0].startswith("'") or cells[0].startswith("\"'")
    assert cells[1].startswith("'") or cells[1].startswith("\"'")


def test_the_lines_of_other_namespaces_are_left_out():
    history = answers(a="team/job/uid", b="secret/job/uid", c="")
    tenant = Rights(namespaces=frozenset({"team"}))
    assert csv(history, tenant) == ["a,team/job,10 %,1970-01-01T00:01:40+00:00,"]
    assert asyncio.run(history.lines(tenant, card="b")) == []
    assert asyncio.run(history.lines(tenant, pod="secret/job")) == []
    assert len(csv(history)) == 3


def test_a_span_has_the_lines_that_overlap_it():
    history = answers(a="team/job/uid")
    assert (len(csv(history, span=(0, 99))), len(csv(history, span=(50, 100)))) == (0, 1)
    assert len(csv(history, span=(5000, 6000))) == 1, "it is still held"


def test_a_time_before_the_memory_has_a_sentence():
    with pytest.raises(NoHistory, match="the history begins at 1970-01-01 00:01:40 UTC; choose a later time"):
        asyncio.run(answers(a="team/job/uid").at(99, ALL))
