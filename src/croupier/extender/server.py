"""The HTTP server of the extender, with one POST endpoint per verb.

Every client that can call bind can bind pods. So except on loopback the server requires TLS with client
certificates of our CA.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import structlog
from prometheus_client import CollectorRegistry

from croupier.capacity.manager import CapacityManager
from croupier.core.placement.placement import Strategy
from croupier.extender import service
from croupier.extender.binder import Binder
from croupier.extender.metrics import ExtenderMetrics
from croupier.extender.node_ranking import NodeRanking
from croupier.extender.protocol import BIND, FILTER
from croupier.extender.requeue import RefusedPodRequeuer
from croupier.extender.response_pacing import ResponsePacer
from croupier.extender.service import ExtenderAnswer, ExtenderOptions, ExtenderService
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.serving import http_server, post_app
from croupier.kube.serving.http_server import Address, CannotListen, ListenOptions
from croupier.kube.serving.post_app import Handler, PostApp, Reply

MAX_BODY = 8 * 1024 * 1024
"""Bytes; four times the size of a request with 20,000 node names and a large pod."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExtenderDependencies:
    """Optional dependencies of the extender."""

    ready: Callable[[], bool] = lambda: True
    """Whether all ledgers are loaded; until then nothing is placed."""
    of_pool: Callable[[str], Strategy | None] = lambda _pool: None
    """The placement strategy of a pool."""
    record: Callable[..., None] = lambda *_event, **_details: None
    """`record` of an EventRecorder."""
    clock: Clock = field(default_factory=SystemClock)
    metrics: ExtenderMetrics = field(default_factory=lambda: ExtenderMetrics(CollectorRegistry()))


class Extender:
    def __init__(
        self,
        manager: CapacityManager,
        api: Client,
        *,
        settings: ExtenderOptions | None = None,
        listen: ListenOptions | None = None,
        dependencies: ExtenderDependencies | None = None,
    ) -> None:
        settings, dependencies = settings or ExtenderOptions(), dependencies or ExtenderDependencies()
        self._listen = listen or ListenOptions(Address("127.0.0.1", 0))
        self._dependencies = dependencies
        strategy = service.strategy_by_pool(settings, dependencies.of_pool)
        self._index = NodeRanking(
            manager, dependencies.clock, strategy=strategy, assume_ttl=settings.assume_ttl
        )
        self._binder = Binder(
            api,
            manager,
            self._index,
            dependencies.clock,
            ttl=settings.ttl,
            record=dependencies.record,
        )
        self._requeuer = RefusedPodRequeuer(api, manager, self._index, dependencies.clock)
        self._service = ExtenderService(
            self._index,
            self._binder,
            self._requeuer,
            pacer=ResponsePacer(dependencies.clock),
            ready=dependencies.ready,
        )

    def app(self) -> PostApp:
        verbs = {FILTER: self._service.filter, BIND: self._service.bind}
        answers = {f"/{name}": self._responder(name, verb) for name, verb in verbs.items()}
        return PostApp(answers, max_body=MAX_BODY, refused=self._refused)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then finish running binds."""
        async with self.serving():
            await stop.wait()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[ListenOptions]:
        """Serve while the block runs; yields the address with the actual port."""
        waking = asyncio.create_task(self._requeuer.run())
        try:
            _check(self._listen)
            async with http_server.serve(self.app(), self._listen) as taken:
                log.info(f"the extender serves kube-scheduler at {taken.url}", url=taken.url)
                yield taken
        finally:
            waking.cancel()
            await asyncio.wait({waking})
            await self._binder.drain(promotions=False)
            self._index.close()

    def _responder(self, name: str, verb: Callable[[bytes], Awaitable[ExtenderAnswer]]) -> Handler:
        clock, metrics = self._dependencies.clock, self._dependencies.metrics

        async def respond(body: bytes) -> Reply:
            began = clock.monotonic()
            try:
                answer = await verb(body)
            except Exception as bug:  # a bug in one request must not close the connection
                log.exception(f"the extender failed to answer {name}", error=repr(bug))
                answer = ExtenderAnswer(b"", "crashed", 500)
            metrics.answered(name, answer.outcome, clock.monotonic() - began)
            return Reply(answer.status, answer.body, post_app.JSON)

        return respond

    def _refused(self, path: str, status: int) -> None:
        name = path.strip("/")
        known = name if name in (FILTER, BIND) else "none"
        self._dependencies.metrics.answered(known, f"refused with {status}", 0.0)


def _check(listen: ListenOptions) -> None:
    if listen.tls is None and not http_server.is_loopback(listen.address.host):
        raise CannotListen(
            f"the extender does not listen on {listen.address} without TLS, because every client that "
            "reaches it can bind pods: configure a certificate, a key and a client CA, or listen on 127.0.0.1"
        )
