"""The history answers with the rows as they were, and forgets the oldest first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.ui.journal import SEGMENT_SECONDS, Journal
from tests.ui import history_worlds
from tests.ui.history_worlds import BEGIN, expected, record, state


@given(history_worlds.histories, st.data())
def test_the_state_at_any_time_equals_the_rows_then(history, data):
    journal = Journal(max_seconds=1e9)
    moments = record(history, journal)
    times = [moment.at + shift for moment in moments for shift in (-0.5, 0.0, 0.5)]
    for at in [*times, BEGIN - 1, data.draw(st.floats(BEGIN, BEGIN + 100_000))]:
        assert state(journal, at) == expected(moments, at)


@given(history_worlds.histories)
def test_closing_changes_no_answer(history):
    journal = Journal(max_seconds=1e9)
    moments = record(history, journal)
    journal.close()
    assert [state(journal, moment.at) for moment in moments] == [
        expected(moments, moment.at) for moment in moments
    ]


@given(history_worlds.histories)
def test_a_replay_leads_to_the_last_rows_and_has_every_change(history):
    journal = Journal(max_seconds=1e9)
    moments = record(history, journal)
    lines = list(journal.replay()())
    assert [line.at for line in lines] == [moment.at for moment in moments]
    assert sum(count for _, count in journal.marks()) == len(lines) - sum(line.whole for line in lines)
    if moments:
        assert (journal.begins, journal.ends) == (moments[0].at, moments[-1].at)


@given(history_worlds.histories, st.sampled_from([0.0, 600.0, 5000.0]))
def test_what_is_too_old_is_forgotten_and_the_rest_is_right(history, seconds):
    journal = Journal(max_seconds=seconds)
    moments = record(history, journal)
    journal.close()
    for moment in moments:
        found = state(journal, moment.at)
        if found is None:
            assert moment.at < journal.begins
            assert journal.ends - moment.at > seconds
        else:
            assert found == expected(moments, moment.at)
    if moments:
        assert journal.begins >= journal.ends - seconds - SEGMENT_SECONDS


def changes(count: int, size: int) -> list[history_worlds.Step]:
    """Each change opens a new segment and has rows that cannot be compressed well."""
    texts = ["".join(chr(33 + (number * 31 + at * at) % 90) for at in range(size)) for number in range(count)]
    return [(SEGMENT_SECONDS, [("cards", "a", text)]) for text in texts]


def test_a_day_is_kept():
    journal = Journal()
    moments = record(changes(24 * 12 + 50, 1), journal)
    journal.close()
    day = 24 * 3600.0
    assert journal.ends - journal.begins == day
    assert state(journal, journal.begins - 1) is None
    assert state(journal, journal.begins) == expected(moments, journal.begins)


def test_the_bytes_are_limited_and_the_oldest_go_first():
    journal = Journal(max_bytes=20_000)
    moments = record(changes(100, 2000), journal)
    journal.close()
    assert 0 < journal.size <= 20_000
    assert moments[0].at < journal.begins < journal.ends == moments[-1].at
    assert state(journal, moments[0].at) is None
    assert state(journal, moments[-1].at) == moments[-1].rows


def test_a_segment_ends_after_five_minutes_with_all_rows_in_the_next():
    journal = Journal()
    history: list[history_worlds.Step] = [(1.0, [("cards", "a", number)]) for number in range(400)]
    record(history, journal)
    begins = [at - BEGIN for at, _ in journal.marks()]
    assert begins == [1.0, 1.0 + SEGMENT_SECONDS]
    assert [line.at - BEGIN for line in journal.replay()() if line.whole] == begins
    assert sum(count for _, count in journal.marks()) == 398


@pytest.mark.parametrize("at", [0.0, BEGIN, 1e12])
def test_an_empty_history_has_no_states(at):
    journal = Journal()
    journal.close()
    assert (journal.at(at), journal.begins, journal.size, journal.marks()) == (None, 0, 0, [])
