"""Helpers for concurrent tasks: parallel requests, and work that ends when the process stops.

The API server answers eight parallel requests in little more time than one.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

MAX_CONCURRENT: Final = 32


async def gather_limited(
    steps: Iterable[Coroutine[Any, Any, T]], *, at_once: int = MAX_CONCURRENT
) -> list[T]:
    """The results of all steps. Every step runs, even if others fail; then the first error is raised."""
    slots, started = asyncio.Semaphore(at_once), list(steps)

    async def in_slot(step: Coroutine[Any, Any, T]) -> T:
        async with slots:
            return await step

    try:
        results = await asyncio.gather(*map(in_slot, started), return_exceptions=True)
    finally:
        for step in started:
            step.close()  # a step cancelled before its start would warn that it was never awaited
    return [_unless_failed(result) for result in results]


def _unless_failed(outcome: T | BaseException) -> T:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


async def wait_or_stop(stop: asyncio.Event, done: Coroutine[Any, Any, Any]) -> None:
    """Wait until `done` has finished or `stop` is set."""
    tasks = {asyncio.create_task(done), asyncio.create_task(stop.wait())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.wait(tasks)
