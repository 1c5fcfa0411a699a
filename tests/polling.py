"""Polling for a state with a deadline, instead of fixed sleeps.

Long waits are recorded for the report at the end of a run (`tests/run_report.py`).
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")

TIMEOUT = 50.0
"""Seconds. Enough on a busy machine, and less than the resync interval of most controllers (one minute)."""

GROWTH = 0.05
"""By what part of the time waited so far the pause between two polls grows: most polls are requests, and the
API server that answers them competes for the CPU with what the test waits for."""

LONGEST_PAUSE = 0.2
"""Seconds."""

LONG = 5.0
"""Seconds from which a wait is recorded."""


class Wait(NamedTuple):
    """A wait that took long. A tuple, so that a worker of pytest-xdist can send it."""

    seconds: float
    tries: int
    what: str
    test: str


LONG_WAITS: list[Wait] = []
"""Those of this process."""


async def until(look: Callable[[], T], what: str = "it", within: float = TIMEOUT) -> T:
    """Poll `look` until its result is true, and return that."""

    async def looking() -> T:
        return look()

    return await until_async(looking, what, within)


async def until_async(
    look: Callable[[], Awaitable[T]], what: str = "it", within: float = TIMEOUT, *, every: float = 0.02
) -> T:
    loop = asyncio.get_running_loop()
    started = loop.time()
    with _recorded(what) as count_try:
        while not (result := await look()):
            waited = loop.time() - started
            assert waited < within, f"waited {within:g} s for {what}"
            count_try()
            await asyncio.sleep(_pause(waited, every))
    return result


def until_blocking(look: Callable[[], T | None], what: str = "it", within: float = 60.0) -> T:
    """The same outside an event loop, for looks that start processes."""
    started = time.monotonic()
    with _recorded(what) as count_try:
        while not (result := look()):
            waited = time.monotonic() - started
            assert waited < within, f"waited {within:g} s for {what}"
            count_try()
            time.sleep(_pause(waited, 0.1))
    return result


def _pause(waited: float, shortest: float) -> float:
    return min(shortest + GROWTH * waited, max(shortest, LONGEST_PAUSE))


@contextlib.contextmanager
def _recorded(what: str) -> Iterator[Callable[[], None]]:
    """Records the wait if it takes long, also one that fails."""
    started, tries = time.monotonic(), [1]

    def count_try() -> None:
        tries[0] += 1

    try:
        yield count_try
    finally:
        seconds = time.monotonic() - started
        if seconds >= LONG:
            test = os.environ.get("PYTEST_CURRENT_TEST", "outside of a test").split(" (")[0]
            LONG_WAITS.append(Wait(seconds, tries[0], what, test))
