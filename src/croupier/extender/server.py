"""The HTTP server of the extender, with one POST endpoint per verb.

Every client that can call bind can bind pods. So except on loopback the server requires TLS with client
certificates of our CA.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from croupier.book.manager import CapacityManager
from croupier.core.placing.placement import Strategy
from croupier.extender import service
from croupier.extender.binder import Binder
from croupier.extender.configuration import BIND, FILTER, PRIORITIZE
from croupier.extender.index import Index
from croupier.extender.service import Answer, Service, Settings
from croupier.extender.turnstile import Turnstile
from croupier.extender.waker import Waker
from croupier.kube import posting, serving
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.posting import Posts, Reply, Respond
from croupier.kube.serving import Address, CannotListen, Listen

LARGEST_BODY = 8 * 1024 * 1024
"""Bytes; four times the size of a request with 20,000 node names and a large pod."""

log = structlog.get_logger(__name__)


class Gauge(Protocol):
    def answered(self, verb: str, outcome: str, seconds: float) -> None: ...


class _Unmeasured:
    def answered(self, verb: str, outcome: str, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Optional dependencies of the extender."""

    ready: Callable[[], bool] = lambda: True
    """Whether all ledgers are loaded; until then nothing is placed."""
    of_pool: Callable[[str], Strategy | None] = lambda _pool: None
    """The placement strategy of a pool."""
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=_Unmeasured)


class Extender:
    def __init__(
        self,
        manager: CapacityManager,
        api: Client,
        *,
        settings: Settings | None = None,
        listen: Listen | None = None,
        around: Surroundings | None = None,
    ) -> None:
        settings, around = settings or Settings(), around or Surroundings()
        self._listen = listen or Listen(Address("127.0.0.1", 0))
        self._around = around
        strategy = service.strategist(settings, around.of_pool)
        self._index = Index(manager, around.clock, strategy=strategy, lasting=settings.lasting)
        self._binder = Binder(api, manager, self._index, around.clock, ttl=settings.ttl)
        self._waker = Waker(api, manager, self._index, around.clock)
        self._service = Service(
            self._index,
            self._binder,
            self._waker,
            turnstile=Turnstile(around.clock),
            ready=around.ready,
            choices=settings.choices,
        )

    def app(self) -> Posts:
        verbs = {FILTER: self._service.filter, PRIORITIZE: self._service.prioritize, BIND: self._service.bind}
        answers = {f"/{name}": self._responder(name, verb) for name, verb in verbs.items()}
        return Posts(answers, largest=LARGEST_BODY, refused=self._refused)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then finish running binds."""
        async with self.serving():
            await stop.wait()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Listen]:
        """Serve while the block runs; yields the address with the actual port."""
        waking = asyncio.create_task(self._waker.run())
        try:
            _check(self._listen)
            async with serving.serve(self.app(), self._listen) as taken:
                log.info("serving kube-scheduler", url=taken.url)
                yield taken
        finally:
            waking.cancel()
            await asyncio.wait({waking})
            await self._binder.drain(promotions=False)
            self._index.close()

    def _responder(self, name: str, verb: Callable[[bytes], Awaitable[Answer]]) -> Respond:
        clock, gauge = self._around.clock, self._around.gauge

        async def respond(body: bytes) -> Reply:
            began = clock.monotonic()
            try:
                answer = await verb(body)
            except Exception as bug:  # a bug in one request must not close the connection
                log.exception(f"{name} failed", error=repr(bug))
                answer = Answer(b"", "crashed", 500)
            gauge.answered(name, answer.outcome, clock.monotonic() - began)
            return Reply(answer.status, answer.body, posting.JSON)

        return respond

    def _refused(self, path: str, status: int) -> None:
        name = path.strip("/")
        known = name if name in (FILTER, PRIORITIZE, BIND) else "none"
        self._around.gauge.answered(known, f"refused with {status}", 0.0)


def _check(listen: Listen) -> None:
    if listen.tls is None and not serving.is_loopback(listen.address.host):
        raise CannotListen(
            f"the extender does not listen on {listen.address} without TLS, because every client that "
            "reaches it can bind pods: configure a certificate, a key and a client CA, or listen on 127.0.0.1"
        )
