"""A thread that runs blocking calls one after another.

A call into a driver's library may hang forever. The caller then gets a timeout, and the process can still
exit, because the thread is a daemon, unlike the threads of concurrent.futures.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CallTimeout(Exception):
    """The call has not returned in time. It may still be running."""


class _Call(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self.call = call
        self.future: Future[T] = Future()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.call())
        except BaseException as error:  # the caller handles every error
            self.future.set_exception(error)


class CallThread:
    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], T], seconds: float) -> T:
        """The result of `call`. CallTimeout if it does not return within `seconds`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        job = _Call(call)
        self._jobs.put(job)
        waiting = asyncio.wrap_future(job.future)
        done, _ = await asyncio.wait({waiting}, timeout=seconds)
        if done:
            return waiting.result()
        waiting.cancel()  # a call that has not started will not start
        raise CallTimeout

    def stop(self) -> None:
        """Let the thread end after its current call, without waiting for it."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
