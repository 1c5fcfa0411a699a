"""Workers that wait for keys: as many are woken as there are ready keys."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from croupier.kube.client.backoff import Backoff
from croupier.kube.controller.workqueue import WorkQueue
from croupier.kube.controller.workqueue_state import WorkQueueState

T = TypeVar("T")


async def soon(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, 5)


async def is_waiting(task: "asyncio.Task[str | None]") -> bool:
    """Whether the task still waits after it could run."""
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


async def test_an_idle_worker_is_woken_by_a_key():
    queue: WorkQueue[str] = WorkQueue()
    worker = asyncio.create_task(queue.take())
    assert await is_waiting(worker)

    queue.add("a")
    assert await soon(worker) == "a"


async def test_two_workers_never_hold_the_same_key():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await soon(queue.take()) == "a"
    second = asyncio.create_task(queue.take())
    queue.add("a")
    assert await is_waiting(second)

    queue.done("a")
    assert await soon(second) == "a"


async def test_a_delayed_key_wakes_a_worker_in_time():
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("late", 0.05)
    queue.add_after("early", 0.01)

    assert [await soon(queue.take()), await soon(queue.take())] == ["early", "late"]


async def test_a_failed_key_is_retried():
    queue: WorkQueue[str] = WorkQueue(WorkQueueState(retries=Backoff(first=0.01)), chance=lambda: 0.5)
    queue.add("a")
    await soon(queue.take())
    assert queue.retry("a") == pytest.approx(0.0075)
    queue.done("a")

    assert await soon(queue.take()) == "a"


async def test_a_key_is_not_lost_with_a_cancelled_worker():
    queue: WorkQueue[str] = WorkQueue()
    leaving = asyncio.create_task(queue.take())
    staying = asyncio.create_task(queue.take())
    assert await is_waiting(leaving)
    queue.add("a")
    leaving.cancel()

    assert await soon(staying) == "a"
    assert leaving.cancelled()


async def test_a_cancelled_worker_does_not_take_a_later_key():
    queue: WorkQueue[str] = WorkQueue()
    leaving = asyncio.create_task(queue.take())
    assert await is_waiting(leaving)
    leaving.cancel()
    await asyncio.wait([leaving])
    queue.add("a")

    assert await soon(queue.take()) == "a"


async def test_many_due_keys_reach_all_idle_workers():
    queue: WorkQueue[int] = WorkQueue()
    workers = [asyncio.create_task(queue.take()) for _ in range(8)]
    for n in range(8):
        queue.add_after(n, 0.01)

    assert set(await soon(asyncio.gather(*workers))) == set(range(8))


async def test_close_ends_the_workers_after_the_last_key():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add_after("never", 3600)
    held = await soon(queue.take())
    resting = [asyncio.create_task(queue.take()) for _ in range(3)]
    queue.close()
    assert await soon(asyncio.gather(*resting)) == [None, None, None]

    assert held == "a"
    drained = asyncio.create_task(queue.drained())
    await asyncio.sleep(0)
    assert not drained.done()
    queue.done(held)
    await soon(drained)


async def test_abandon_drops_ready_keys():
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.abandon()

    assert await soon(queue.take()) is None
    await soon(queue.drained())
