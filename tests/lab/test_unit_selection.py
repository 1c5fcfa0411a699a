"""`pytest --unit` runs what starts no process, finds the rest by itself, and fails what evades it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
pythonpath = {root}
"""

HELPERS = """
import subprocess
import sys

class Program:
    def start(self):
        return subprocess.run([sys.executable, "-c", ""], check=True)

def started():
    return Program().start()
"""

SUITE = """
import asyncio
import importlib

import helpers
import pytest
from croupier_lab.pytest_plugin import RUN
from hypothesis import given, strategies as st

@pytest.fixture
def program():
    return helpers.Program()

@pytest.fixture(params=["memory", "cluster"])
def ledger(request):
    return request.param if request.param == "memory" else request.getfixturevalue("cluster")

def test_that_is_pure():
    assert helpers.__name__ == "helpers"

@given(st.integers())
async def test_that_awaits(number):
    await asyncio.sleep(0)
    assert number + 1 > number

def test_with_either_ledger(ledger):
    assert ledger == "memory"

def test_on_a_cluster(cluster):
    raise AssertionError("selected")

def test_in_a_namespace(namespace):
    raise AssertionError("selected")

async def test_on_a_lab_of_its_own(pytestconfig):
    raise AssertionError(f"selected with {pytestconfig.stash[RUN]}")

def test_of_a_program(program):
    raise AssertionError("selected")

def test_that_starts_a_program():
    helpers.started()
    raise AssertionError("selected")

async def test_that_starts_a_program_asynchronously():
    await asyncio.create_subprocess_exec("true")
    raise AssertionError("selected")

@pytest.mark.parametrize("start", [helpers.started])
def test_that_gets_a_function(start):
    raise AssertionError("selected")
"""

EVADES = """
import importlib

def test_that_starts_a_program_by_another_way():
    try:
        getattr(importlib.import_module("helpers"), "start" + "ed")()
    except Exception:
        pass
"""


@pytest.fixture
def unit(tmp_path):
    """Runs pytest --unit on one file, in a folder of its own."""

    def run(suite: str) -> tuple[int, str]:
        (tmp_path / "pytest.ini").write_text(SETTINGS.format(root=ROOT))
        (tmp_path / "helpers.py").write_text(HELPERS)
        (tmp_path / "test_it.py").write_text(suite)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.unit_selection",
            "-p",
            "no:randomly",
            "--unit",
            "-rA",
        ]
        ended = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        return ended.returncode, ended.stdout

    return run


def test_tests_that_can_start_a_process_are_deselected(unit):
    code, output = unit(SUITE)

    assert code == 0, output
    assert "3 passed, 1 skipped, 7 deselected" in output
    for name in ("test_that_is_pure", "test_that_awaits", "test_with_either_ledger[memory]"):
        assert f"PASSED test_it.py::{name}" in output
    assert "fixture cluster can start a process" in output


def test_a_test_that_starts_a_process_nevertheless_fails(unit):
    code, output = unit(EVADES)

    assert code == 1, output
    assert "test_that_starts_a_program_by_another_way starts a process (subprocess.Popen" in output
