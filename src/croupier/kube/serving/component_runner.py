"""Runs the components of a process: started in order, stopped in reverse order.

On SIGTERM or SIGINT the components stop, the last started first, each within its
grace period: accept no more work, finish the current work, release the lease, flush
the Events, close the client. A second signal stops them immediately. If a component
crashes or ends early, the whole process ends with a non-zero exit code and a log
line with the reason, because a partly running control plane only looks healthy.
"""

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from croupier.kube.client.errors import KubeError

log = structlog.get_logger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CANCEL_TIMEOUT = 5.0
"""Seconds that a cancelled component has to end."""
GC_THRESHOLD = 50_000
"""Garbage collection threshold of generation 0. A request creates thousands of short-lived objects, which the
default of 700 would scan while they are still in use."""


@dataclass(frozen=True, slots=True)
class Component:
    """`run` works until its stop event is set, then must return within `grace` seconds."""

    name: str
    run: Callable[[asyncio.Event], Awaitable[None]]
    grace: float = 10.0


def until_cancelled(name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> Component:
    """A component that is stopped by cancellation, such as a reflector."""

    async def until(stop: asyncio.Event) -> None:
        running = asyncio.create_task(run())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            stopping.cancel()
            running.cancel()
            await asyncio.wait({running})

    return Component(name, until)


@dataclass(slots=True)
class ComponentRunner:
    """`abort` ends a process with a component that cannot be stopped."""

    components: Sequence[Component]
    abort: Callable[[int], object] = os._exit
    _stop_requested: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _stop_now: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    @property
    def stopping(self) -> bool:
        """For a readiness check: the process should get no more work."""
        return self._stop_requested.is_set()

    def stop(self) -> None:
        """Same as a signal: the first call stops gracefully, the second immediately."""
        if self._stop_requested.is_set():
            log.warning("the process got a second stop request and stops immediately")
            self._stop_now.set()
        else:
            log.info("the process stops")
        self._stop_requested.set()

    async def run(self) -> int:
        """The exit code: 0 if a stop was requested and every component ended without error."""
        with self._signals():
            running = [_Running.start(part) for part in self.components]
            stopping: asyncio.Future[Any] = asyncio.ensure_future(self._stop_requested.wait())
            tasks = {each.task for each in running}
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            success = self._stop_requested.is_set()
            self._stop_requested.set()
            for each in reversed(running):
                success &= await self._end(each)
        return 0 if success else 1

    async def _end(self, running: "_Running") -> bool:
        """Stop one component; True if it ended without error."""
        ended_early = running.task.done()
        running.stop.set()
        if not await self._finished(running):
            name, grace = running.component.name, running.component.grace
            log.warning(
                f"{name} did not stop within {grace:g} s and is cancelled", component=name, seconds=grace
            )
            running.task.cancel()
            _, left = await asyncio.wait({running.task}, timeout=CANCEL_TIMEOUT)
            if left:
                log.critical("component cannot be stopped: aborting the process", component=name)
                self.abort(1)
            return False
        return _ended_without_error(running, ended_early)

    async def _finished(self, running: "_Running") -> bool:
        """Wait for the component to end, until its grace period is over or a second stop request comes."""
        insisted: asyncio.Future[Any] = asyncio.ensure_future(self._stop_now.wait())
        try:
            await asyncio.wait(
                {running.task, insisted}, timeout=running.component.grace, return_when=asyncio.FIRST_COMPLETED
            )
            return running.task.done()
        finally:
            insisted.cancel()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)


@dataclass(frozen=True, slots=True)
class _Running:
    component: Component
    stop: asyncio.Event
    task: "asyncio.Future[None]"

    @classmethod
    def start(cls, component: Component) -> "_Running":
        stop = asyncio.Event()
        return cls(component, stop, asyncio.ensure_future(component.run(stop)))


def main(start: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a process to its end and return its exit code; a failed start is logged in one sentence."""
    gc.freeze()  # what is imported stays
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()
    try:
        return asyncio.run(start())
    except KubeError as error:
        log.error(f"the process cannot start: {error}", error=str(error))
    except Exception as error:
        log.error(f"the process crashed: {error!r}", exc_info=error)
    return 1


def _ended_without_error(running: _Running, ended_early: bool) -> bool:
    name = running.component.name
    if running.task.cancelled():
        log.error(f"{name} cancelled itself", component=name)
        return False
    if (error := running.task.exception()) is not None:
        cause = _single_cause(error)
        log.error(
            f"{name} crashed, stopping the process: {str(cause) or repr(cause)}",
            component=name,
            exc_info=error,
        )
        return False
    if ended_early:
        log.error(f"{name} ended unexpectedly, stopping the process", component=name)
    return not ended_early


def _single_cause(error: BaseException) -> BaseException:
    """The single error of an exception group with one error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
