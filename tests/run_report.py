"""What made a run slow: the slowest files and the longest waits, printed at its end.

A wait is one call of `tests/polling.py`. A long one is a state that came late, and usually the first sign of
a test that fails on a slower machine. Workers of pytest-xdist send their waits with their last message.
"""

from collections import Counter
from typing import Any

import pytest

from tests import polling
from tests.polling import Wait

SHOWN = 10
WAITS = pytest.StashKey[list[Wait]]()
FILES = pytest.StashKey[Counter[str]]()
WORKER_WAITS = "croupier_waits"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WAITS] = []
    config.stash[FILES] = Counter()
    config.pluginmanager.register(_FileTimes(config.stash[FILES]))


class _FileTimes:
    """Sums setup, call and teardown of the tests of each file; with workers, in the process that prints."""

    def __init__(self, seconds: Counter[str]) -> None:
        self._seconds = seconds

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file, _, _ = report.nodeid.partition("::")
        self._seconds[file] += report.duration  # type: ignore[assignment] # a Counter also adds floats


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if (output := getattr(config, "workeroutput", None)) is not None:
        output[WORKER_WAITS] = [tuple(wait) for wait in polling.LONG_WAITS]
    else:
        config.stash[WAITS] += polling.LONG_WAITS


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the waits of a finished xdist worker."""
    waits = getattr(node, "workeroutput", {}).get(WORKER_WAITS, [])
    node.config.stash[WAITS] += [Wait(*wait) for wait in waits]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in report(config.stash[FILES], config.stash[WAITS]):
        terminalreporter.write_line(line)


def report(files: Counter[str], waits: list[Wait]) -> list[str]:
    """The lines of the report; none if the run was short."""
    slow = [(name, seconds) for name, seconds in files.most_common(SHOWN) if seconds >= polling.LONG]
    longest = sorted(waits, key=lambda wait: wait.seconds, reverse=True)[:SHOWN]
    lines = [f"Slowest files, of {len(files)}:"] if slow else []
    lines += [f"  {seconds:6.1f} s  {name}" for name, seconds in slow]
    lines += [f"Longest waits, of {len(waits)} over {polling.LONG:g} s:"] if longest else []
    lines += [f"  {wait.seconds:6.1f} s  {wait.tries} tries  {wait.what}  {wait.test}" for wait in longest]
    return lines
