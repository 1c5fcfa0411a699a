"""Waiting for a state of the world with a deadline, never for an amount of time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 50.0
"""Seconds. Long on a busy machine, and less than the minute after which much is looked at again unasked."""


async def until(look: Callable[[], T], what: str = "it", within: float = PATIENCE) -> T:
    """Poll `look` until it answers something true, and answer that."""

    async def looking() -> T:
        return look()

    return await until_async(looking, what, within)


async def until_async(look: Callable[[], Awaitable[T]], what: str = "it", within: float = PATIENCE) -> T:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not (found := await look()):
        assert loop.time() < deadline, f"waited {within:g} s for {what}"
        await asyncio.sleep(0.02)
    return found
