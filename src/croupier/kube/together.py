"""Several things at once: requests, of which the API server answers eight in little more time than one; and
whatever we do beside waiting to be stopped."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 32


async def all_of(steps: Iterable[Coroutine[Any, Any, T]], *, at_once: int = AT_ONCE) -> list[T]:
    """What each came to. Every step is tried; the first that failed is what failed."""
    turns, begun = asyncio.Semaphore(at_once), list(steps)

    async def in_turn(step: Coroutine[Any, Any, T]) -> T:
        async with turns:
            return await step

    try:
        ended = await asyncio.gather(*map(in_turn, begun), return_exceptions=True)
    finally:
        for step in begun:
            step.close()  # cancelled before its turn, it would complain that nobody waited for it
    return [_unless_failed(one) for one in ended]


def _unless_failed(outcome: T | BaseException) -> T:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


async def first(stop: asyncio.Event, done: Coroutine[Any, Any, Any]) -> None:
    """Until it is done, or we are stopped."""
    waits = {asyncio.create_task(done), asyncio.create_task(stop.wait())}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
    await asyncio.wait(waits)
