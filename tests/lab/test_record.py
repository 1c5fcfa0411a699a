"""The state of a lab follows from its record."""

import msgspec
import pytest

from croupier.lab import process, record
from croupier.lab.process import Process, Program
from croupier.lab.record import Record, State

NOBODY = Process("gone", 2**22 - 1, 1.0, "")


@pytest.fixture
def sleeper(tmp_path):
    """A process that sleeps until the end of the test."""
    started = process.start(Program("sleeper", ("sleep", "600")), tmp_path)
    yield started
    process.kill(started)


def lab(tmp_path="/nowhere", **changes) -> Record:
    return Record(
        **{"name": "x", "folder": str(tmp_path), "parts": (), "ports": {}, "binaries": {}, **changes}
    )


def test_a_lab_is_running_while_all_its_parts_and_its_owner_are(sleeper):
    assert record.state(lab(ready=True, processes=(sleeper,))) is State.RUNNING
    assert record.state(lab(ready=True, processes=(sleeper,), owner=record.myself())) is State.RUNNING


def test_a_lab_whose_owner_was_killed_is_broken(sleeper):
    assert record.state(lab(ready=True, processes=(sleeper,), owner=NOBODY)) is State.BROKEN


def test_a_lab_that_lost_one_part_is_broken_and_all_parts_stopped(sleeper):
    assert record.state(lab(ready=True, processes=(sleeper, NOBODY))) is State.BROKEN
    assert record.state(lab(ready=True, processes=(NOBODY,))) is State.STOPPED


def test_a_lab_is_starting_only_while_its_owner_lives(sleeper):
    assert record.state(lab(processes=(sleeper,), owner=record.myself())) is State.STARTING
    assert record.state(lab(processes=(sleeper,), owner=NOBODY)) is State.BROKEN


def test_a_reused_pid_is_not_the_same_process(sleeper):
    reused = msgspec.structs.replace(sleeper, created=sleeper.created - 100)

    assert record.state(lab(ready=True, processes=(reused,))) is State.STOPPED


def test_a_record_is_saved_and_loaded(tmp_path):
    written = lab(tmp_path, processes=(NOBODY,), extra={"etcd": ("--flag",)}, owner=record.myself())
    record.save(written)

    assert record.load(tmp_path) == written
    record.forget(written)
    assert record.load(tmp_path) is None


def test_an_invalid_record_is_ignored(tmp_path):
    (tmp_path / record.FILE).write_text('{"name": 3')

    assert record.load(tmp_path) is None
