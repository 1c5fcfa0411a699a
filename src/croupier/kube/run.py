"""A process of long-lived parts: started in order, stopped in reverse order, never half dead.

SIGTERM or SIGINT asks the parts to end, the last started first, each within its
grace: take no more work, finish what is begun, hand the lease back, flush the
Events, close the client. A second signal insists. A part that crashes, or ends
without being asked, takes the whole process down with a non-zero exit code and a
sentence that says which and why: half a control plane looks healthy and is not.
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

from croupier.kube.errors import KubeError

log = structlog.get_logger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LAST_GRACE = 5.0
"""Seconds a cancelled part has to end."""
YOUNG = 50_000
"""New objects before Python looks for those that only hold each other. Requests make thousands that are gone
a moment later; at the default of 700 they are looked through while they still live."""


@dataclass(frozen=True, slots=True)
class Part:
    """`run` works until its event is set, then finishes within `grace` seconds and returns."""

    name: str
    run: Callable[[asyncio.Event], Awaitable[None]]
    grace: float = 10.0


def endless(name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> Part:
    """A part that knows only cancellation, such as a reflector."""

    async def until(stop: asyncio.Event) -> None:
        running = asyncio.create_task(run())
        asked = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            asked.cancel()
            running.cancel()
            await asyncio.wait({running})

    return Part(name, until)


@dataclass(slots=True)
class Process:
    """`abort` ends a process whose parts do not end: nothing may go on in the dark."""

    parts: Sequence[Part]
    abort: Callable[[int], object] = os._exit
    _asked: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _insisted: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    @property
    def stopping(self) -> bool:
        """For a readiness check: send us no more work."""
        return self._asked.is_set()

    def stop(self) -> None:
        """As a signal would: the first call asks, the second insists."""
        if self._asked.is_set():
            log.warning("asked again: stopping at once")
            self._insisted.set()
        else:
            log.info("stopping")
        self._asked.set()

    async def run(self) -> int:
        """The exit code: 0 when we were asked to stop and every part ended well."""
        with self._signals():
            running = [_Running.start(part) for part in self.parts]
            asked: asyncio.Future[Any] = asyncio.ensure_future(self._asked.wait())
            await asyncio.wait({asked, *(one.task for one in running)}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            well = self._asked.is_set()
            self._asked.set()
            for one in reversed(running):
                well &= await self._end(one)
        return 0 if well else 1

    async def _end(self, one: "_Running") -> bool:
        """Stop one part; True if it ended well."""
        unasked = one.task.done()
        one.stop.set()
        if not await self._finished(one):
            log.warning("part did not stop in time", part=one.part.name, grace=one.part.grace)
            one.task.cancel()
            _, left = await asyncio.wait({one.task}, timeout=LAST_GRACE)
            if left:
                log.critical("part does not stop at all: ending the process", part=one.part.name)
                self.abort(1)
            return False
        return _ended_well(one, unasked)

    async def _finished(self, one: "_Running") -> bool:
        """Within its grace, and unless somebody insists."""
        insisted: asyncio.Future[Any] = asyncio.ensure_future(self._insisted.wait())
        try:
            await asyncio.wait(
                {one.task, insisted}, timeout=one.part.grace, return_when=asyncio.FIRST_COMPLETED
            )
            return one.task.done()
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
    part: Part
    stop: asyncio.Event
    task: "asyncio.Future[None]"

    @classmethod
    def start(cls, part: Part) -> "_Running":
        stop = asyncio.Event()
        return cls(part, stop, asyncio.ensure_future(part.run(stop)))


def main(start: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a process to its end; what stops it from starting is said in one sentence."""
    gc.set_threshold(YOUNG)
    try:
        return asyncio.run(start())
    except KubeError as error:
        log.error("cannot run: " + str(error))
    except Exception as error:
        log.error(f"crashed: {error!r}", exc_info=error)
    return 1


def _ended_well(one: _Running, unasked: bool) -> bool:
    name = one.part.name
    if one.task.cancelled():
        log.error(f"{name} was cancelled from within", part=name)
        return False
    if (error := one.task.exception()) is not None:
        cause = _only(error)
        log.error(
            f"{name} crashed, so the process ends: {str(cause) or repr(cause)}", part=name, exc_info=error
        )
        return False
    if unasked:
        log.error(f"{name} ended without being asked, so the process ends", part=name)
    return not unasked


def _only(error: BaseException) -> BaseException:
    """The one failure inside a group of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
