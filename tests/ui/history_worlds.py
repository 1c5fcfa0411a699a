"""Histories of rows for the tests of the journal: what was published when, and the rows after it."""

import copy
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from croupier.ui.history_answers import HistoryAnswers
from croupier.ui.journal import Journal
from croupier.ui.tables import PARTS, TABLES, Tables

Rows = dict[str, dict[str, Any]]
Step = tuple[float, list[tuple[str, str, Any]]]
"""Seconds since the last step, and the rows that are put."""

_values = st.one_of(st.none(), st.integers(0, 3))
_puts = st.tuples(st.sampled_from(TABLES[:3]), st.sampled_from("abc"), _values)
_steps = st.tuples(st.sampled_from([0.0, 1.0, 60.0, 299.0, 301.0, 4000.0]), st.lists(_puts, max_size=3))
histories = st.lists(_steps, min_size=1, max_size=25)

BEGIN = 1_763_440_000.0


@dataclass(frozen=True)
class Moment:
    at: float
    rows: Rows


def rows_of(tables: Tables) -> Rows:
    found = {table: rows for part in PARTS for table, rows in tables.rows(part).items() if rows}
    return copy.deepcopy(found)


def record(history: list[Step], journal: Journal, begin: float = BEGIN) -> list[Moment]:
    """Write the history to the journal; the rows after each change."""
    tables = Tables("test")
    answers = HistoryAnswers(journal, tables)
    moments, now = [], begin
    for seconds, puts in history:
        now += seconds
        for put in puts:
            tables.put(*put)
        if (delta := tables.flush(now)) is not None:
            answers.record(delta)
            moments.append(Moment(now, rows_of(tables)))
    return moments


def state(journal: Journal, at: float) -> Rows | None:
    """The rows at a time; None before the memory begins."""
    found = journal.at(at)
    return None if found is None else {table: rows for table, rows in found.rows.items() if rows}


def expected(moments: list[Moment], at: float) -> Rows | None:
    past = [moment for moment in moments if moment.at <= at]
    return past[-1].rows if past else None
