"""Polling for a state with a deadline, instead of fixed sleeps."""

import asyncio
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


async def until_async(look: Callable[[], Awaitable[T]], what: str = "it", within: float = TIMEOUT) -> T:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not (result := await look()):
        assert loop.time() < deadline, f"waited {within:g} s for {what}"
        await asyncio.sleep(0.02)
    return result
