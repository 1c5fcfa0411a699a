"""Polling for a state with a deadline, instead of fixed sleeps."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT = 50.0
"""Seconds. Enough on a busy machine, and less than the resync interval of most controllers (one minute)."""


async def until(look: Callable[[], T], what: str = "it", within: float = TIMEOUT) -> T:
    """Poll `look` until its result is true, and return that."""

    async def looking() -> T:
        return look()

    return await until_async(looking, what, within)


async def until_async(
    look: Callable[[], Awaitable[T]], what: str = "it", within: float = TIMEOUT, *, every: float = 0.02
) -> T:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not (result := await look()):
        assert loop.time() < deadline, f"waited {within:g} s for {what}"
        await asyncio.sleep(every)
    return result


def until_blocking(look: Callable[[], T | None], what: str = "it", within: float = 60.0) -> T:
    """The same outside an event loop, for looks that start processes."""
    deadline = time.monotonic() + within
    while not (result := look()):
        assert time.monotonic() < deadline, f"waited {within:g} s for {what}"
        time.sleep(0.1)
    return result
