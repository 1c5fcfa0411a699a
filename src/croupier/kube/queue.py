"""The asynchronous work queue: `take` waits until a key is ready.

All rules are in `workqueue_state`; this module adds the event loop's clock, random
jitter, and the wake-up of waiting workers.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from croupier.kube.backlog import Backlog, Handout

K = TypeVar("K", bound=Hashable)


class Gauge(Protocol):
    """Metrics of a work queue."""

    def watch_depth(self, depth: Callable[[], int]) -> None: ...
    def added(self) -> None: ...
    def taken(self, waited: float) -> None: ...
    def retried(self) -> None: ...


class Silent:
    """Discards the metrics."""

    def watch_depth(self, depth: Callable[[], int]) -> None: ...
    def added(self) -> None: ...
    def taken(self, waited: float) -> None: ...
    def retried(self) -> None: ...


class WorkQueue(Generic[K]):
    """Belongs to the event loop in which it was created."""

    def __init__(
        self,
        backlog: Backlog[K] | None = None,
        *,
        gauge: Gauge | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._backlog: Backlog[K] = backlog or Backlog()
        self._gauge: Gauge = gauge or Silent()
        self._loop = asyncio.get_running_loop()
        self._chance = chance
        self._idle: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._drained = asyncio.Event()
        self._gauge.watch_depth(lambda: self._backlog.ready)

    def add(self, key: K) -> None:
        if self._backlog.add(key, self._loop.time()):
            self._gauge.added()
            self._wake()

    def add_after(self, key: K, delay: float) -> None:
        now = self._loop.time()
        if self._backlog.add_at(key, now + delay, now):
            self._gauge.added()
            self._wake()

    def retry(self, key: K, no_sooner: float = 0.0) -> float:
        """Requeue a failed key; return the delay until the next attempt."""
        delay = self._backlog.retry(key, self._loop.time(), self._chance(), no_sooner)
        self._gauge.retried()
        self._wake()
        return delay

    def forget(self, key: K) -> None:
        self._backlog.forget(key)

    async def take(self) -> K | None:
        """The next key, to be finished with `done`; None once the queue is closed and empty."""
        while True:
            handout = self._next()
            if handout is not None:
                return handout.key
            if self._backlog.closed:
                return None
            await self._rest()

    def done(self, key: K) -> None:
        self._backlog.done(key, self._loop.time())
        self._wake()

    def close(self) -> None:
        """Accept no more keys; workers get the ready keys, then None."""
        self._backlog.close()
        self._wake()

    def abandon(self) -> None:
        """Like `close`, but drop the ready keys too."""
        self._backlog.clear()
        self._wake()

    async def drained(self) -> None:
        """Wait until the queue is closed, empty, and no worker holds a key."""
        await self._drained.wait()

    @property
    def ready(self) -> int:
        return self._backlog.ready

    @property
    def waiting(self) -> int:
        return self._backlog.waiting

    def _next(self) -> Handout[K] | None:
        handout = self._backlog.take(self._loop.time())
        if handout is not None:
            self._gauge.taken(handout.waited)
            if self._backlog.ready:
                self._wake()  # one alarm may have made several keys ready
            else:
                self._set_alarm()
        return handout

    async def _rest(self) -> None:
        turn: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(turn)
        self._set_alarm()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake()  # this worker was called but is cancelled: call the next one
            elif turn in self._idle:
                self._idle.remove(turn)
            raise

    def _wake(self) -> None:
        if self._backlog.drained:
            self._drained.set()
        self._call(len(self._idle) if self._backlog.closed else min(self._backlog.ready, 1))
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Keep one timer for the earliest waiting key, only while a worker is idle."""
        due = self._backlog.next_alarm() if self._idle else None
        if self._alarm is not None:
            if due is not None and self._alarm.when() <= due:
                return
            self._alarm.cancel()
            self._alarm = None
        if due is not None:
            self._alarm = self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._call(1)

    def _call(self, workers: int) -> None:
        """Wake up that many idle workers."""
        while workers and self._idle:
            turn = self._idle.popleft()
            if not turn.done():
                turn.set_result(None)
                workers -= 1
