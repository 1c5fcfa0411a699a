"""The end of a run names its slowest files and longest waits, also those of workers."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import run_report
from tests.polling import Wait

ROOT = Path(__file__).parents[2]

SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
pythonpath = {root}
"""

WAITS = """
import time

from tests import polling
from tests.polling import until, until_blocking

polling.LONG = 0.2

async def test_that_waits():
    start = time.monotonic()
    await until(lambda: time.monotonic() > start + 0.3, "the state that comes late")

def test_that_waits_in_vain():
    until_blocking(lambda: None, "what never comes", within=0.3)

async def test_that_does_not_wait():
    assert await until(lambda: "there", "the state that is there")
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["without workers", "with a worker"])
def test_long_waits_are_reported_with_their_tests(tmp_path, workers):
    (tmp_path / "pytest.ini").write_text(SETTINGS.format(root=ROOT))
    (tmp_path / "test_it.py").write_text(WAITS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.run_report", "-p", "no:randomly", *workers]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    assert "  the state that comes late  test_it.py::test_that_waits\n" in ended.stdout
    assert "  what never comes  test_it.py::test_that_waits_in_vain\n" in ended.stdout
    assert "the state that is there" not in ended.stdout
    assert "1 failed, 2 passed" in ended.stdout.splitlines()[-1]


def test_the_longest_come_first_and_the_rest_is_counted():
    files = Counter({f"test_{number}.py": number for number in range(20)})
    waits = [Wait(seconds, 3, "a pod", f"test_{seconds}") for seconds in range(5, 20)]

    lines = run_report.report(files, waits)

    assert lines[:2] == ["Slowest files, of 20:", "    19.0 s  test_19.py"]
    assert lines[11:13] == ["Longest waits, of 15 over 5 s:", "    19.0 s  3 tries  a pod  test_19"]
    assert len(lines) == 22


def test_a_short_run_has_no_report():
    assert run_report.report(Counter({"test_a.py": 1}), []) == []
