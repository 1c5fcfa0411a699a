"""One thread for calls that block, one after another.

A driver's library may hang in a call for good. Then its caller is told after a while, and the process can
still end: the thread is a daemon, which those of concurrent.futures are not.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Late(Exception):
    """The call has not returned in time; it may still do its work."""


class _Job(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self.call = call
        self.future: Future[T] = Future()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.call())
        except BaseException as error:  # whatever it is, it is for the one who called
            self.future.set_exception(error)


class Worker:
    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], T], seconds: float) -> T:
        """The result of `call`; Late when there is none after so many seconds."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        job = _Job(call)
        self._jobs.put(job)
        waiting = asyncio.wrap_future(job.future)
        done, _ = await asyncio.wait({waiting}, timeout=seconds)
        if done:
            return waiting.result()
        waiting.cancel()  # one that has not begun never will
        raise Late

    def stop(self) -> None:
        """The thread ends after what it does now; nobody waits for it."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
