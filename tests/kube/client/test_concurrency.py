"""Concurrent requests: all run, at most the limit at a time, and a failure is raised."""

import asyncio

import pytest

from croupier.kube.client import concurrency
from tests.polling import until


async def test_results_are_in_the_order_of_the_steps():
    running, most = 0, 0

    async def ask(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (5 - number))
        running -= 1
        return number

    assert await concurrency.gather_limited((ask(number) for number in range(5)), at_once=2) == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert most == 2


async def test_a_failing_step_does_not_stop_the_others():
    done = []

    async def ask(number: int) -> None:
        if number == 1:
            raise LookupError(f"no {number}")
        await asyncio.sleep(0)
        done.append(number)

    with pytest.raises(LookupError, match="no 1"):
        await concurrency.gather_limited(ask(number) for number in range(3))
    assert done == [0, 2]


async def test_cancelling_cancels_all_steps():
    begun = []

    async def ask(number: int) -> None:
        begun.append(number)
        await asyncio.Event().wait()

    work = asyncio.create_task(concurrency.gather_limited((ask(number) for number in range(3)), at_once=2))
    await until(lambda: len(begun) == 2, "two of them")
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert begun == [0, 1]
