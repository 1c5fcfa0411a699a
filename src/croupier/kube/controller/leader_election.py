"""Leader election: runs work only while this process holds a Lease.

The decisions are in `lease`. This module sends the requests, enforces the deadline
and orders the shutdown: when the lease is lost, the work is cancelled first; when
the work ends, the lease is released, so that the next candidate need not wait.
"""

import asyncio
import contextlib
import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
from prometheus_client import CollectorRegistry

from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import Conflict, KubeError, NotFound
from croupier.kube.client.resource import Raw
from croupier.kube.controller import lease
from croupier.kube.controller.lease import LEASES, Acquire, LeaseTimings, Lost, ObservedLease, Renew, Wait
from croupier.kube.controller.metrics import LeaderMetrics

log = structlog.get_logger(__name__)


class NotLeader(KubeError):
    """A write refused before it was sent, because another process may be the leader now."""


class WorkNotStopped(KubeError):
    """The work did not stop when the lease was lost; only ending the process can stop it."""


@dataclass(slots=True)
class Leadership:
    """One period as leader. Every renewal extends `until`."""

    identity: str
    clock: Clock
    until: float

    def held(self) -> bool:
        return self.clock.monotonic() < self.until

    def require(self) -> None:
        """Raise before a write if the lease has expired, for example in a process that was frozen."""
        if not self.held():
            raise NotLeader(f"{self.identity} is no longer the leader: its lease was not renewed in time")


def unique_name() -> str:
    """A unique identity: the pod name or the host name, and a random suffix."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}"


Work = Callable[[Leadership], Awaitable[None]]


@dataclass(slots=True)
class Elector:
    """A candidate for the Lease `namespace`/`name`. `identity` must be unique among the candidates."""

    api: Client
    name: str
    namespace: str
    identity: str = field(default_factory=unique_name)
    terms: LeaseTimings = field(default_factory=LeaseTimings)
    clock: Clock = field(default_factory=SystemClock)
    chance: Callable[[], float] = random.random
    metrics: LeaderMetrics = field(default_factory=lambda: LeaderMetrics(CollectorRegistry()))
    _observed: ObservedLease | None = field(init=False, default=None)
    _lease: Raw | None = field(init=False, default=None)

    async def run(self, work: Work, stop: asyncio.Event) -> None:
        """Acquire the lease and run `work`, again after a loss, until `work` ends or `stop` is set.

        `work` must observe `stop` too.
        """
        self._report_leading(False)
        while (leadership := await self._acquire(stop)) is not None:
            self._report_leading(True)
            try:
                if await self._lead(leadership, work):
                    return
            finally:
                self._report_leading(False)

    async def _acquire(self, stop: asyncio.Event) -> Leadership | None:
        """Wait until the lease is acquired; None if `stop` is set first."""
        while not stop.is_set():
            pause = self.terms.pause(self.chance())
            try:
                async with asyncio.timeout(self.terms.renew_deadline):
                    await self._read_lease()
                    match self._decide():
                        case Acquire() | Renew():
                            return await self._claim()
                        case Wait(until=until):
                            pause = min(pause, max(0.0, until - self.clock.monotonic()))
            except Conflict:
                pause *= self.chance()  # another candidate was faster, or the holder renewed
            except (KubeError, TimeoutError) as error:
                log.warning(
                    f"{self.identity} cannot acquire Lease {self._path}",
                    lease=self._path,
                    error=str(error) or "timed out",
                )
            await _wait_at_most(stop.wait(), pause)
        return None

    async def _lead(self, leadership: Leadership, work: Work) -> bool:
        """True when the work has ended, False when the lease was lost. Errors of the work are raised."""
        log.info(
            f"{self.identity} became leader of Lease {self._path}", lease=self._path, identity=self.identity
        )
        working = asyncio.ensure_future(work(leadership))
        renewing = asyncio.create_task(self._renew(leadership))
        deadline = _Deadline(leadership, on_expiry=working.cancel)
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() or (working.cancelled() and not leadership.held()):
                await self._stop_work(leadership, working)
                return False
            await self._end(renewing)
            await self._release(leadership)
            working.result()
            return True
        finally:
            deadline.cancel()
            await self._end(renewing, working)

    async def _stop_work(self, leadership: Leadership, working: "asyncio.Future[None]") -> None:
        """Cancel the work, which must end before another candidate may take the lease."""
        leadership.until = float("-inf")
        await self._end(working)
        if not working.done():
            raise WorkNotStopped(f"work under lease {self._path} still runs after the lease was lost")
        if not working.cancelled() and (error := working.exception()):
            log.warning(
                f"the work under Lease {self._path} failed while it was cancelled",
                lease=self._path,
                exc_info=error,
            )
        log.warning(
            f"{self.identity} stopped leading Lease {self._path}", lease=self._path, identity=self.identity
        )

    async def _renew(self, leadership: Leadership) -> None:
        """Renew the lease until it is lost."""
        took = 0.0
        while leadership.held():
            await self.clock.sleep(self.terms.renewal_pause(took, self.chance()))
            began = self.clock.monotonic()
            try:
                async with asyncio.timeout(max(0.0, leadership.until - self.clock.monotonic())):
                    await self._renew_once(leadership)
            except (KubeError, TimeoutError) as error:
                log.warning(
                    f"{self.identity} cannot renew Lease {self._path}",
                    lease=self._path,
                    error=str(error) or "timed out",
                )
            took = self.clock.monotonic() - began

    async def _renew_once(self, leadership: Leadership) -> None:
        """Usually one PUT; if the Lease has changed, read its holder."""
        try:
            leadership.until = (await self._claim()).until
            return
        except (Conflict, NotFound):
            await self._read_lease()
        match self._decide(leadership.until):
            case Lost(reason=reason):
                log.warning(
                    f"{self.identity} lost Lease {self._path}: {reason}", lease=self._path, reason=reason
                )
                leadership.until = float("-inf")
            case _:
                leadership.until = (await self._claim()).until

    async def _release(self, leadership: Leadership) -> None:
        """Release the lease. If that fails, it expires."""
        try:
            async with asyncio.timeout(max(0.0, leadership.until - self.clock.monotonic())):
                await self._read_lease()
                if self._lease is not None and lease.read(self._lease).holder == self.identity:
                    await self.api.update(LEASES, lease.released(self._lease, now=self.clock.now()))
                    log.info(
                        f"{self.identity} released Lease {self._path}",
                        lease=self._path,
                        identity=self.identity,
                    )
        except (KubeError, TimeoutError) as error:
            log.warning(
                f"{self.identity} cannot release Lease {self._path}",
                lease=self._path,
                error=str(error) or "timed out",
            )

    async def _read_lease(self) -> None:
        try:
            self._lease = await self.api.get(LEASES, self.name, namespace=self.namespace)
            self._observed = lease.observe(self._observed, self._lease, self.clock.monotonic())
        except NotFound:
            self._lease = self._observed = None

    def _decide(self, leads_until: float | None = None) -> lease.Decision:
        now = self.clock.monotonic()
        return lease.decide(self._observed, self.identity, now=now, terms=self.terms, leads_until=leads_until)

    async def _claim(self) -> Leadership:
        """Acquire or renew the Lease as last read; raises Conflict if it has changed since."""
        sent = self.clock.monotonic()
        known = self._lease or lease.new(self.name, self.namespace)
        body = lease.acquired(known, self.identity, now=self.clock.now(), terms=self.terms)
        write = self.api.create if self._lease is None else self.api.update
        self._lease = await write(LEASES, body)
        self._observed = lease.observe(self._observed, self._lease, sent)
        return Leadership(self.identity, self.clock, until=sent + self.terms.renew_deadline)

    async def _end(self, *tasks: "asyncio.Future[None]") -> None:
        """Cancel the tasks and wait, but only as long as no other candidate can acquire the lease."""
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=self.terms.duration - self.terms.renew_deadline)

    def _report_leading(self, leads: bool) -> None:
        self.metrics.leading(self._path, leads)

    @property
    def _path(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Deadline:
    """Calls `on_expiry` when the leadership expires; extensions move that time."""

    def __init__(self, leadership: Leadership, on_expiry: Callable[[], object]) -> None:
        self._leadership = leadership
        self._on_expiry = on_expiry
        self._timer = self._arm()

    def cancel(self) -> None:
        self._timer.cancel()

    def _arm(self) -> asyncio.TimerHandle:
        left = self._leadership.until - self._leadership.clock.monotonic()
        return asyncio.get_running_loop().call_later(max(0.0, left), self._expire)

    def _expire(self) -> None:
        if self._leadership.held():
            self._timer = self._arm()
        else:
            self._on_expiry()


async def _wait_at_most(event: Awaitable[object], seconds: float) -> None:
    """Wait for `event` for at most `seconds`."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event, seconds)
