"""`pytest --unit`: only the tests that start no process, so no Kubernetes either (`make unit`).

There is no list of such tests. A test is deselected if its code, or the code of one of its fixtures, can
reach something that starts a process or a lab (`tests/reachability.py`). A test that chooses such a fixture
only while it runs is skipped then. A test that starts a process nevertheless fails.
"""

import functools
import sys
from collections.abc import Callable, Generator, Iterable
from typing import Any

import pytest
from hypothesis import settings

from tests import reachability

OPTION = "--unit"
PROFILE = "unit"
EXAMPLES = 10
"""Examples of a property that names no number of its own. The whole suite uses hypothesis' default, 100."""

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"}
"""Audit events of CPython that mean a new process."""

settings.register_profile(PROFILE, deadline=None, max_examples=EXAMPLES)


class ProcessGuard:
    """Keeps processes out of a run. Audit hooks cannot be removed, so this one works only during tests."""

    def __init__(self) -> None:
        self._test: str | None = None
        sys.addaudithook(self._observe)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, bool, bool]:
        self._test = item.nodeid
        try:
            return (yield)
        finally:
            self._test = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        if _starts_process(fixturedef.func):
            pytest.skip(f"fixture {fixturedef.argname} can start a process, which {OPTION} excludes")

    def _observe(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._test is not None and event in STARTS:
            pytest.fail(f"{self._test} starts a process ({event} {arguments[0]!r}), which {OPTION} excludes")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="only tests that start no process (make unit)")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(OPTION):
        settings.load_profile(PROFILE)
        config.pluginmanager.register(ProcessGuard())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption(OPTION):
        return
    starts_process = reachability.starting_processes(map(_code_of, items))
    left_out = [item for item, starts in zip(items, starts_process, strict=True) if starts]
    items[:] = [item for item, starts in zip(items, starts_process, strict=True) if not starts]
    config.hook.pytest_deselected(items=left_out)


@functools.cache
def _starts_process(fixture: Callable[..., Any]) -> bool:
    return reachability.starting_processes([[fixture]]) == [True]


def _code_of(item: pytest.Item) -> Iterable[object]:
    """The test, its parameters and its fixtures."""
    yield getattr(item, "obj", None)
    yield from getattr(getattr(item, "callspec", None), "params", {}).values()
    for definitions in getattr(item, "_fixtureinfo").name2fixturedefs.values():  # noqa: B009 (only Functions have it)
        yield from (definition.func for definition in definitions)
