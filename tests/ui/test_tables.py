"""Deltas that are folded in order lead to the published rows, from every snapshot that is remembered."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.ui.tables import PARTS, TABLES, Delta, Tables, fold

Rows = dict[str, dict[str, Any]]

values = st.one_of(st.none(), st.integers(0, 2), st.tuples(st.integers(0, 2)))
puts = st.tuples(st.sampled_from(TABLES[:3]), st.sampled_from("abc"), values)
histories = st.lists(st.lists(puts, max_size=5), max_size=12)
"""The puts between two flushes."""


def published(tables: Tables) -> Rows:
    rows = {table: found for part in PARTS for table, found in tables.rows(part).items() if found}
    return copy.deepcopy(rows)


def folded(rows: Rows, deltas: Any) -> Rows:
    copied = copy.deepcopy(rows)
    for delta in deltas:
        fold(copied, delta.tables)
    return {table: found for table, found in copied.items() if found}


def play(tables: Tables, history: list[list[tuple[str, str, Any]]]) -> list[tuple[int, Rows]]:
    """The position and the rows before the first flush and after each."""
    seen = [(tables.seq, published(tables))]
    for at, changes in enumerate(history):
        for put in changes:
            tables.put(*put)
        tables.flush(at)
        seen.append((tables.seq, published(tables)))
    return seen


@given(histories)
def test_every_snapshot_continues_to_the_current_rows(history):
    tables = Tables("test")
    for seq, rows in play(tables, history):
        deltas = tables.since(seq)
        assert deltas is not None
        assert folded(rows, deltas) == published(tables)


@given(histories)
def test_a_delta_may_be_applied_twice(history):
    tables = Tables("test")
    for seq, rows in play(tables, history):
        deltas = tables.since(seq) or ()
        assert folded(rows, [delta for one in deltas for delta in (one, one)]) == published(tables)


@given(histories, st.integers(1, 4))
def test_what_is_not_remembered_is_never_continued(history, kept):
    tables = Tables("test", kept=kept)
    for seq, rows in play(tables, history):
        deltas = tables.since(seq)
        assert (deltas is None) == (tables.seq - seq > kept)
        if deltas is not None:
            assert folded(rows, deltas) == published(tables)


@given(histories)
def test_each_delta_has_the_previous_values(history):
    tables = Tables("test")
    steps = play(tables, history)
    rows = dict(steps)
    for delta in tables.since(0) or ():
        before = rows[delta.seq - 1]
        for table, changes in delta.tables.items():
            assert delta.before[table] == {key: before.get(table, {}).get(key) for key in changes}
            assert all(delta.before[table][key] != value for key, value in changes.items())


NO_CHANGE = {
    "nothing": [],
    "the same value": [("cards", "a", 1)],
    "back to the published value": [("cards", "a", 2), ("cards", "a", 1)],
    "deleted and set again": [("cards", "a", None), ("cards", "a", 1)],
    "a row that came and went": [("cards", "b", 1), ("cards", "b", None)],
    "an unknown row deleted": [("cards", "b", None)],
}


@pytest.mark.parametrize("puts", NO_CHANGE.values(), ids=NO_CHANGE)
def test_what_did_not_change_costs_no_delta(puts):
    tables = Tables("test")
    tables.put("cards", "a", 1)
    tables.flush(0)
    for put in puts:
        tables.put(*put)
    assert (tables.flush(1), tables.seq, tables.at) == (None, 1, 0)


def test_a_flush_has_the_last_value_of_each_row():
    tables = Tables("test")
    for value in range(5):
        tables.put("cards", "a", value)
    assert tables.latest("cards", "a") == 4
    assert tables.row("cards", "a") is None, "not published yet"
    assert tables.flush(7) == Delta(1, 7, {"cards": {"a": 4}}, {"cards": {"a": None}})
    assert tables.row("cards", "a") == 4


UNKNOWN_POSITIONS = {"the future": 3, "long ago": -1}


@pytest.mark.parametrize("seq", UNKNOWN_POSITIONS.values(), ids=UNKNOWN_POSITIONS)
def test_unknown_positions(seq):
    tables = Tables("test")
    play(tables, [[("cards", "a", 1)], [("cards", "a", 2)]])
    assert tables.since(seq) is None


def test_numbers_of_holders_are_never_used_again():
    tables = Tables("test")
    first = tables.number("node", "team/pod/uid")
    assert tables.number("node", "team/pod/uid") == first
    assert tables.number("other-node", "team/pod/uid") != first
    tables.retire("node", "team/pod/uid")
    assert tables.number("node", "team/pod/uid") != first
    tables.retire("node", "unknown")


def test_a_retired_holder_has_a_name_until_the_deltas_with_its_number_are_gone():
    """Until then a browser that comes back may get rows with the number."""
    tables = Tables("test", kept=3)
    number = tables.number("node", "team/pod/uid")
    tables.put("cards", "a", (number, 0))
    tables.flush(0)
    tables.retire("node", "team/pod/uid")
    tables.put("cards", "a", None)
    names = []
    for at in range(1, 6):
        tables.flush(at)
        names.append(tables.holder(number))
        tables.put("cards", "a", (0, at))
    assert names == ["team/pod/uid"] * 3 + [""] * 2
    assert tables.holder(12345) == ""
