"""The history in files survives a restart and a crash, and a disk that fails does not end the page."""

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from croupier.ui.history_files import HistoryFiles
from croupier.ui.journal import Journal
from tests.ui import history_worlds
from tests.ui.history_worlds import BEGIN, Step, expected, record, state

EXAMPLES = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
FOUR: list[Step] = [(1.0, [("cards", "a", number)]) for number in range(4)]


def opened(folder: Path) -> Journal:
    """A new process with the files of the folder."""
    store = HistoryFiles(folder)
    return Journal(store, store.load(), max_seconds=1e9)


@EXAMPLES
@given(history=history_worlds.histories, crash=st.booleans())
def test_the_next_process_knows_what_the_last_one_knew(history, crash, tmp_path_factory):
    folder = tmp_path_factory.mktemp("history")
    journal = opened(folder)
    moments = record(history, journal)
    if not crash:
        journal.close()
    later = opened(folder)
    for moment in moments:
        assert state(later, moment.at) == expected(moments, moment.at)
    assert not list(folder.glob("*.lines"))


def test_a_crash_in_the_middle_of_a_line_loses_this_line_only(tmp_path):
    moments = record(FOUR, opened(tmp_path))
    (open_file,) = tmp_path.glob("*.lines")
    open_file.write_bytes(open_file.read_bytes()[:-20])
    later = opened(tmp_path)
    assert [state(later, moment.at) for moment in moments[:3]] == [moment.rows for moment in moments[:3]]
    assert state(later, moments[3].at) == moments[2].rows


@pytest.mark.parametrize("left", [b"", b'{"at": 17634'], ids=["nothing", "a part of the first line"])
def test_a_crash_before_the_first_line_leaves_nothing(left, tmp_path):
    (tmp_path / f"{int(BEGIN) * 1000}.lines").write_bytes(left)
    journal = opened(tmp_path)
    assert (journal.begins, list(tmp_path.iterdir())) == (0, [])


def test_lines_that_a_failing_disk_has_damaged_do_not_stop_the_start(tmp_path):
    """What was complete before the damage is kept."""
    moments = record(FOUR, opened(tmp_path))
    (open_file,) = tmp_path.glob("*.lines")
    lines = open_file.read_bytes().split(b"\n")
    open_file.write_bytes(b"\n".join([*lines[:2], b"\0" * 40, b""]))
    later = opened(tmp_path)
    assert state(later, moments[1].at) == moments[1].rows
    assert state(later, moments[3].at) == moments[1].rows


def test_processes_follow_each_other(tmp_path):
    first = record(FOUR, opened(tmp_path))
    second = record([(1.0, [("cards", "b", 9)])], opened(tmp_path), begin=BEGIN + 1000)
    third = opened(tmp_path)
    assert (third.begins, len(third.marks())) == (first[0].at, 2)
    assert state(third, BEGIN + 500) == first[-1].rows
    assert state(third, BEGIN + 2000) == second[-1].rows


def test_dropped_segments_are_deleted(tmp_path):
    store = HistoryFiles(tmp_path)
    journal = Journal(store, store.load(), max_seconds=1000)
    moments = record([(400.0, [("cards", "a", number)]) for number in range(20)], journal)
    journal.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == len(journal.marks()) < 20
    assert names[0].startswith(str(int(journal.begins * 1000)))
    assert opened(tmp_path).begins == journal.begins > moments[0].at


def test_only_the_owner_reads_them(tmp_path):
    """They name pods."""
    folder = tmp_path / "new" / "history"
    journal = opened(folder)
    record(FOUR, journal)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (lines,) = folder.iterdir()
    assert stat.S_IMODE(lines.stat().st_mode) == 0o600
    journal.close()
    (closed,) = folder.iterdir()
    assert (closed.suffix, stat.S_IMODE(closed.stat().st_mode)) == (".history", 0o600)


def test_other_files_of_the_folder_are_left_alone(tmp_path):
    for name in ("notes.txt", "x.history", "1-2.history"):
        (tmp_path / name).write_text("mine")
    assert opened(tmp_path).begins == 0
    assert {path.read_text() for path in tmp_path.iterdir()} == {"mine"}


def test_a_missing_disk_keeps_the_history_in_memory(tmp_path):
    folder = tmp_path / "gone"
    journal = opened(folder)
    folder.rmdir()
    moments = record([*FOUR, (400.0, [("cards", "b", 1)]), (400.0, [("cards", "b", 2)])], journal)
    assert [state(journal, moment.at) for moment in moments] == [moment.rows for moment in moments]
