"""Runs work while we hold a Lease, and not a moment longer.

The decisions are in `lease`; here are the requests, the deadline, and the order
of ending: when the lease is lost the work is cancelled first; when the work
ends, the lease is handed back, so that the next candidate need not wait.
"""

import asyncio
import contextlib
import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from croupier.kube import lease
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import Conflict, KubeError, NotFound
from croupier.kube.lease import LEASES, Acquire, Lost, Renew, Sighting, Terms, Wait
from croupier.kube.resource import Raw

log = structlog.get_logger(__name__)


class NotLeading(KubeError):
    """Refused before it was sent: somebody else may be leading by now."""


class StillWorking(KubeError):
    """The work did not stop when the lease was lost; only the end of the process can stop it."""


class Gauge(Protocol):
    def leading(self, lease: str, leads: bool) -> None: ...


@dataclass(slots=True)
class Leadership:
    """Our term of office. `until` moves on with every renewal."""

    identity: str
    clock: Clock
    until: float

    def held(self) -> bool:
        return self.clock.monotonic() < self.until

    def require(self) -> None:
        """For those about to write: a frozen process wakes up here before it does harm."""
        if not self.held():
            raise NotLeading(f"{self.identity} no longer leads: its lease was not renewed in time")


def unique_name() -> str:
    """A name no other process has: the host (in a cluster the pod) and a random part."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}"


Work = Callable[[Leadership], Awaitable[None]]


@dataclass(slots=True)
class Elector:
    """A candidate for the Lease `namespace`/`name`. `identity` must differ from every other candidate's."""

    api: Client
    name: str
    namespace: str
    identity: str = field(default_factory=unique_name)
    terms: Terms = field(default_factory=Terms)
    clock: Clock = field(default_factory=SystemClock)
    chance: Callable[[], float] = random.random
    gauge: Gauge | None = None
    _seen: Sighting | None = field(init=False, default=None)
    _lease: Raw | None = field(init=False, default=None)

    async def run(self, work: Work, stop: asyncio.Event) -> None:
        """Campaign and lead, again after a loss, until `work` ends. `work` must heed `stop` too."""
        self._tell(False)
        while (leadership := await self._campaign(stop)) is not None:
            self._tell(True)
            try:
                if await self._lead(leadership, work):
                    return
            finally:
                self._tell(False)

    async def _campaign(self, stop: asyncio.Event) -> Leadership | None:
        """Wait for our turn; None if `stop` came first."""
        while not stop.is_set():
            pause = self.terms.pause(self.chance())
            try:
                async with asyncio.timeout(self.terms.renew_deadline):
                    await self._look()
                    match self._decide():
                        case Acquire() | Renew():
                            return await self._claim()
                        case Wait(until=until):
                            pause = min(pause, max(0.0, until - self.clock.monotonic()))
            except Conflict:
                pause *= self.chance()  # another candidate was faster, or the holder lives
            except (KubeError, TimeoutError) as error:
                log.warning("cannot campaign", lease=self._path, error=str(error) or "timed out")
            await _first(stop.wait(), pause)
        return None

    async def _lead(self, leadership: Leadership, work: Work) -> bool:
        """True when the work is over, False when the lease was lost. A crash of the work is raised."""
        log.info("leading", lease=self._path, identity=self.identity)
        working = asyncio.ensure_future(work(leadership))
        renewing = asyncio.create_task(self._renew(leadership))
        deadline = _Deadline(leadership, on_expiry=working.cancel)
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() or (working.cancelled() and not leadership.held()):
                await self._abandon(leadership, working)
                return False
            await self._end(renewing)
            await self._release(leadership)
            working.result()
            return True
        finally:
            deadline.cancel()
            await self._end(renewing, working)

    async def _abandon(self, leadership: Leadership, working: "asyncio.Future[None]") -> None:
        """Cancel the work, which must have ended before another may take the lease."""
        leadership.until = float("-inf")
        await self._end(working)
        if not working.done():
            raise StillWorking(f"the work under lease {self._path} goes on after the lease was lost")
        if not working.cancelled() and (error := working.exception()):
            log.warning("work failed while it was cancelled", lease=self._path, exc_info=error)
        log.warning("stopped leading", lease=self._path, identity=self.identity)

    async def _renew(self, leadership: Leadership) -> None:
        """Renew for as long as we may lead; returns when we may not."""
        while leadership.held():
            await self.clock.sleep(self.terms.pause(self.chance()))
            try:
                async with asyncio.timeout(max(0.0, leadership.until - self.clock.monotonic())):
                    await self._renew_once(leadership)
            except (KubeError, TimeoutError) as error:
                log.warning("cannot renew", lease=self._path, error=str(error) or "timed out")

    async def _renew_once(self, leadership: Leadership) -> None:
        """Usually one PUT; if the Lease changed meanwhile, look who holds it."""
        try:
            leadership.until = (await self._claim()).until
            return
        except (Conflict, NotFound):
            await self._look()
        match self._decide(leadership.until):
            case Lost(reason=reason):
                log.warning("lost the lease", lease=self._path, reason=reason)
                leadership.until = float("-inf")
            case _:
                leadership.until = (await self._claim()).until

    async def _release(self, leadership: Leadership) -> None:
        """Hand the lease back. If that fails, it runs out by itself."""
        try:
            async with asyncio.timeout(max(0.0, leadership.until - self.clock.monotonic())):
                await self._look()
                if self._lease is not None and lease.read(self._lease).holder == self.identity:
                    await self.api.update(LEASES, lease.released(self._lease, now=self.clock.now()))
                    log.info("handed the lease back", lease=self._path, identity=self.identity)
        except (KubeError, TimeoutError) as error:
            log.warning("cannot hand the lease back", lease=self._path, error=str(error) or "timed out")

    async def _look(self) -> None:
        try:
            self._lease = await self.api.get(LEASES, self.name, namespace=self.namespace)
            self._seen = lease.sight(self._seen, self._lease, self.clock.monotonic())
        except NotFound:
            self._lease = self._seen = None

    def _decide(self, leads_until: float | None = None) -> lease.Decision:
        now = self.clock.monotonic()
        return lease.decide(self._seen, self.identity, now=now, terms=self.terms, leads_until=leads_until)

    async def _claim(self) -> Leadership:
        """Take or renew the Lease as last seen; Conflict if it changed since."""
        sent = self.clock.monotonic()
        known = self._lease or lease.new(self.name, self.namespace)
        body = lease.claimed(known, self.identity, now=self.clock.now(), terms=self.terms)
        write = self.api.create if self._lease is None else self.api.update
        self._lease = await write(LEASES, body)
        self._seen = lease.sight(self._seen, self._lease, sent)
        return Leadership(self.identity, self.clock, until=sent + self.terms.renew_deadline)

    async def _end(self, *tasks: "asyncio.Future[None]") -> None:
        """Cancel them and wait, but no longer than it is sure that no other leads."""
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=self.terms.duration - self.terms.renew_deadline)

    def _tell(self, leads: bool) -> None:
        if self.gauge is not None:
            self.gauge.leading(self._path, leads)

    @property
    def _path(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Deadline:
    """Calls `on_expiry` the moment the leadership has run out, however often it is extended before."""

    def __init__(self, leadership: Leadership, on_expiry: Callable[[], object]) -> None:
        self._leadership = leadership
        self._on_expiry = on_expiry
        self._timer = self._arm()

    def cancel(self) -> None:
        self._timer.cancel()

    def _arm(self) -> asyncio.TimerHandle:
        left = self._leadership.until - self._leadership.clock.monotonic()
        return asyncio.get_running_loop().call_later(max(0.0, left), self._ring)

    def _ring(self) -> None:
        if self._leadership.held():
            self._timer = self._arm()
        else:
            self._on_expiry()


async def _first(event: Awaitable[object], seconds: float) -> None:
    """Wait for `event`, but no longer than `seconds`."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event, seconds)
