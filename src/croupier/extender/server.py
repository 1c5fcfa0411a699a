"""The extender as kube-scheduler reaches it: three POSTs, for those who may ask.

Whoever can call bind can have pods bound. So beyond loopback only TLS is spoken, and only with those
whose certificate our authority signed. Bodies are bounded in size and time; whatever else is sent
gets a short answer and does no harm. Every answer has a Content-Length, or the scheduler would open
a new connection for each request.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from croupier.book.manager import CapacityManager
from croupier.core.placement import Strategy
from croupier.extender import service
from croupier.extender.binder import Binder
from croupier.extender.index import Index
from croupier.extender.service import Answer, Service, Settings
from croupier.extender.waker import Waker
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import KubeError
from croupier.kube.health import Address, CannotListen

LARGEST_BODY = 8 * 1024 * 1024
"""Bytes: 20,000 node names and a large pod fit four times."""
SLOWEST_BODY = 5.0
"""Seconds a body may take to arrive."""
RENEWAL = 30.0
"""Seconds between looks at the certificate files."""

log = structlog.get_logger(__name__)


class Gauge(Protocol):
    def answered(self, verb: str, outcome: str, seconds: float) -> None: ...


class _Unmeasured:
    def answered(self, verb: str, outcome: str, seconds: float) -> None: ...


class BadCertificate(KubeError):
    """The files for TLS cannot be used; says which and why."""


@dataclass(frozen=True, slots=True)
class TLS:
    """Our certificate and key, and the authority whose clients may ask."""

    certificate: Path
    key: Path
    client_authority: Path


@dataclass(frozen=True, slots=True)
class Listen:
    address: Address
    tls: TLS | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an extender is given beside the book and the API server."""

    ready: Callable[[], bool] = lambda: True
    """Whether the book is complete; before that nothing is placed."""
    of_pool: Callable[[str], Strategy | None] = lambda _pool: None
    """The strategy a pool asks for."""
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
            self._index, self._binder, self._waker, ready=around.ready, choices=settings.choices
        )

    def app(self) -> Starlette:
        verbs = {name: getattr(self._service, name) for name in ("filter", "prioritize", "bind")}
        return Starlette(
            routes=[
                Route(f"/{name}", self._endpoint(name, verb), methods=["POST"])
                for name, verb in verbs.items()
            ]
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then finish what was begun."""
        async with self.serving():
            await stop.wait()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Listen]:
        """Serve while the block runs; yields where, with the port that was really taken."""
        waking = asyncio.create_task(self._waker.run())
        try:
            async with _serving(self.app(), self._listen) as taken:
                log.info("serving kube-scheduler", url=taken.url)
                yield taken
        finally:
            waking.cancel()
            await asyncio.wait({waking})
            await self._binder.drain()
            self._index.close()

    def _endpoint(
        self, name: str, verb: Callable[[bytes], Awaitable[Answer]]
    ) -> Callable[[Request], Awaitable[Response]]:
        clock, gauge = self._around.clock, self._around.gauge

        async def endpoint(request: Request) -> Response:
            body = await _body(request)
            if isinstance(body, Response):
                gauge.answered(name, "refused by size, time or type", 0.0)
                return body
            began = clock.monotonic()
            try:
                answer = await verb(body)
            except Exception as bug:  # one bad request must not end the connection of the others
                log.exception(f"{name} failed", error=repr(bug))
                answer = Answer(b"", "crashed", 500)
            gauge.answered(name, answer.outcome, clock.monotonic() - began)
            return Response(answer.body, answer.status, media_type="application/json")

        return endpoint


async def _body(request: Request) -> bytes | Response:
    """All of it, or the answer to what is too large, too slow or no JSON."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return PlainTextResponse("send application/json\n", 415)
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > LARGEST_BODY:
        return _too_large()
    pieces = bytearray()
    try:
        async with asyncio.timeout(SLOWEST_BODY):
            async for piece in request.stream():
                pieces += piece
                if len(pieces) > LARGEST_BODY:
                    return _too_large()
    except TimeoutError:
        return _closing(f"the body took longer than {SLOWEST_BODY:g} seconds", 408)
    except ClientDisconnect:
        return _closing("", 400)
    return bytes(pieces)


def _too_large() -> Response:
    return _closing(f"the body has more than {LARGEST_BODY} bytes", 413)


def _closing(text: str, status: int) -> Response:
    """The rest of the body is not read, so the connection cannot be used again."""
    return PlainTextResponse(f"{text}\n", status, headers={"Connection": "close"})


@contextlib.asynccontextmanager
async def _serving(app: Starlette, listen: Listen) -> AsyncIterator[Listen]:
    _check(listen)
    context = None if listen.tls is None else _context(listen.tls)
    listener = _listener(listen.address)
    config = uvicorn.Config(
        app, lifespan="off", access_log=False, log_config=None, timeout_graceful_shutdown=5
    )
    config.load()
    config.ssl = context
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    serving = asyncio.create_task(server.main_loop())
    renewing = asyncio.create_task(_renew(listen.tls, context)) if listen.tls and context else None
    try:
        yield Listen(Address(*listener.getsockname()[:2]), listen.tls)
    finally:
        if renewing is not None:
            renewing.cancel()
        server.should_exit = True
        await serving
        await server.shutdown(sockets=[listener])


def _check(listen: Listen) -> None:
    if listen.tls is None and not _is_loopback(listen.address.host):
        raise CannotListen(
            f"the extender does not listen on {listen.address} without TLS, because whoever reaches it can "
            "have pods bound: give it a certificate, a key and the authority of its clients, or let it "
            "listen on 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listener(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family, backlog=512)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {address}: {error.strerror}; choose another address or port"
        ) from error
    listener.setblocking(False)
    return listener


def _context(tls: TLS) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, tls)
    return context


def _load(context: ssl.SSLContext, tls: TLS) -> None:
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        context.load_verify_locations(tls.client_authority)
    except (OSError, ssl.SSLError) as bad:
        files = f"{tls.certificate}, {tls.key} and {tls.client_authority}"
        raise BadCertificate(f"TLS cannot be served with {files}: {bad}") from bad


async def _renew(tls: TLS, context: ssl.SSLContext) -> None:
    """Certificates are rotated in place: new connections get the new one."""
    seen = _moments(tls)
    while True:
        await asyncio.sleep(RENEWAL)
        if (now := _moments(tls)) == seen:
            continue
        try:
            _load(context, tls)
            seen = now
            log.info("took over a new certificate", file=str(tls.certificate))
        except BadCertificate as bad:  # half written: the old one serves until the next look
            log.warning(str(bad))


def _moments(tls: TLS) -> tuple[int, ...]:
    files = (tls.certificate, tls.key, tls.client_authority)
    return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)
