"""The state of a lab follows from its record."""

import msgspec
import pytest

from croupier_lab import process, record
from croupier_lab.process import LabProcess, Program
from croupier_lab.record import LabRecord, LabState

DEAD_PROCESS = LabProcess("gone", 2**22 - 1, 1.0, "")


@pytest.fixture
def sleeper(tmp_path):
    """A process that sleeps until the end of the test."""
    started = process.start(Program("sleeper", ("sleep", "600")), tmp_path)
    yield started
    process.kill(started)


def lab(tmp_path="/nowhere", **changes) -> LabRecord:
    return LabRecord(
        **{"name": "x", "folder": str(tmp_path), "parts": (), "ports": {}, "binaries": {}, **changes}
    )


def test_a_lab_is_running_while_all_its_parts_and_its_owner_are(sleeper):
    assert record.state(lab(ready=True, processes=(sleeper,))) is LabState.RUNNING
    assert (
        record.state(lab(ready=True, processes=(sleeper,), owner=record.current_process()))
        is LabState.RUNNING
    )


def test_a_lab_whose_owner_was_killed_is_broken(sleeper):
    assert record.state(lab(ready=True, processes=(sleeper,), owner=DEAD_PROCESS)) is LabState.BROKEN


def test_a_lab_that_lost_one_part_is_broken_and_all_parts_stopped(sleeper):
    assert record.state(lab(ready=True, processes=(sleeper, DEAD_PROCESS))) is LabState.BROKEN
    assert record.state(lab(ready=True, processes=(DEAD_PROCESS,))) is LabState.STOPPED


def test_a_lab_is_starting_only_while_its_owner_lives(sleeper):
    assert record.state(lab(processes=(sleeper,), owner=record.current_process())) is LabState.STARTING
    assert record.state(lab(processes=(sleeper,), owner=DEAD_PROCESS)) is LabState.BROKEN


def test_a_reused_pid_is_not_the_same_process(sleeper):
    reused = msgspec.structs.replace(sleeper, created=sleeper.created - 100)

    assert record.state(lab(ready=True, processes=(reused,))) is LabState.STOPPED


def test_a_record_is_saved_and_loaded(tmp_path):
    written = lab(
        tmp_path, processes=(DEAD_PROCESS,), extra={"etcd": ("--flag",)}, owner=record.current_process()
    )
    record.save(written)

    assert record.load(tmp_path) == written
    record.delete(written)
    assert record.load(tmp_path) is None


def test_an_invalid_record_is_ignored(tmp_path):
    (tmp_path / record.FILE).write_text('{"name": 3')

    assert record.load(tmp_path) is None
