"""The asynchronous work queue: `take` waits until a key is ready.

All rules are in `workqueue_state`; this module adds the event loop's clock, random
jitter, and the wake-up of waiting workers.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.workqueue_state import QueueItem, WorkQueueState

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Belongs to the event loop in which it was created."""

    def __init__(
        self,
        state: WorkQueueState[K] | None = None,
        *,
        metrics: ControllerMetrics | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._state: WorkQueueState[K] = state or WorkQueueState()
        self._metrics = metrics or ControllerMetrics()
        self._loop = asyncio.get_running_loop()
        self._chance = chance
        self._idle: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._drained = asyncio.Event()
        self._metrics.watch_depth(lambda: self._state.ready)

    def add(self, key: K) -> None:
        if self._state.add(key, self._loop.time()):
            self._metrics.added()
            self._wake()

    def add_after(self, key: K, delay: float) -> None:
        now = self._loop.time()
        if self._state.add_at(key, now + delay, now):
            self._metrics.added()
            self._wake()

    def retry(self, key: K, no_sooner: float = 0.0) -> float:
        """Requeue a failed key; return the delay until the next attempt."""
        delay = self._state.retry(key, self._loop.time(), self._chance(), no_sooner)
        self._metrics.retried()
        self._wake()
        return delay

    def forget(self, key: K) -> None:
        self._state.forget(key)

    async def take(self) -> K | None:
        """The next key, to be finished with `done`; None once the queue is closed and empty."""
        while True:
            handout = self._next()
            if handout is not None:
                return handout.key
            if self._state.closed:
                return None
            await self._wait_for_work()

    def done(self, key: K) -> None:
        self._state.done(key, self._loop.time())
        self._wake()

    def close(self) -> None:
        """Accept no more keys; workers get the ready keys, then None."""
        self._state.close()
        self._wake()

    def abandon(self) -> None:
        """Like `close`, but drop the ready keys too."""
        self._state.clear()
        self._wake()

    async def drained(self) -> None:
        """Wait until the queue is closed, empty, and no worker holds a key."""
        await self._drained.wait()

    @property
    def ready(self) -> int:
        return self._state.ready

    @property
    def waiting(self) -> int:
        return self._state.waiting

    def _next(self) -> QueueItem[K] | None:
        handout = self._state.take(self._loop.time())
        if handout is not None:
            self._metrics.taken(handout.waited)
            if self._state.ready:
                self._wake()  # one alarm may have made several keys ready
            else:
                self._set_timer()
        return handout

    async def _wait_for_work(self) -> None:
        turn: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(turn)
        self._set_timer()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake()  # this worker was called but is cancelled: call the next one
            elif turn in self._idle:
                self._idle.remove(turn)
            raise

    def _wake(self) -> None:
        if self._state.drained:
            self._drained.set()
        self._call(len(self._idle) if self._state.closed else min(self._state.ready, 1))
        self._set_timer()

    def _set_timer(self) -> None:
        """Keep one timer for the earliest waiting key, only while a worker is idle."""
        due = self._state.next_alarm() if self._idle else None
        if self._timer is not None:
            if due is not None and self._timer.when() <= due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._call(1)

    def _call(self, workers: int) -> None:
        """Wake up that many idle workers."""
        while workers and self._idle:
            turn = self._idle.popleft()
            if not turn.done():
                turn.set_result(None)
                workers -= 1
