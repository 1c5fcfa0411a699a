"""Tells the kubelet whether we live and are ready, and Prometheus how we are doing.

/livez says whether a restart would help; /readyz whether we should get work;
/healthz is the old name of /livez. Each is the sum of named checks: 200 when
all pass, 503 and the names of those that do not; `?verbose` shows all of them.
The server runs in our event loop and leaves signals to `run`.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import structlog
import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from croupier.kube.errors import KubeError

log = structlog.get_logger(__name__)

Check = Callable[[], str | None]
"""None when all is well, else the sentence that says what is not. Must not block."""


class CannotListen(KubeError):
    """The address for health and metrics cannot be used."""


@dataclass(slots=True)
class Health:
    """The checks of one process; names are what `?verbose` prints."""

    live: dict[str, Check] = field(default_factory=dict)
    ready: dict[str, Check] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def app(health: Health, registry: CollectorRegistry) -> Starlette:
    async def live(request: Request) -> Response:
        return _answer(health.live, request)

    async def ready(request: Request) -> Response:
        return _answer(health.ready, request)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    return Starlette(
        routes=[
            Route("/healthz", live),
            Route("/livez", live),
            Route("/readyz", ready),
            Route("/metrics", metrics),
        ]
    )


def parse(address: str) -> Address:
    """`:8080`, `127.0.0.1:8080`, `[::1]:8080`; port 0 takes a free one."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"address {address!r} is not HOST:PORT, for example :8080 or 127.0.0.1:8080")
    return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104  # a pod's probes come from outside


@contextlib.asynccontextmanager
async def serve(application: Starlette, address: Address) -> AsyncIterator[Address]:
    """Serve while the block runs; yields the address that was really taken."""
    listener = _listen(address)
    taken = Address(*listener.getsockname()[:2])
    config = uvicorn.Config(
        application, lifespan="off", access_log=False, log_config=None, timeout_graceful_shutdown=2
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    serving = asyncio.create_task(server.main_loop())
    log.info("serving health and metrics", address=str(taken))
    try:
        yield taken
    finally:
        server.should_exit = True
        await serving
        await server.shutdown(sockets=[listener])


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise CannotListen(
            f"cannot listen on {address}: {error.strerror}; choose another address or port"
        ) from error
    listener.setblocking(False)
    return listener


def _answer(checks: dict[str, Check], request: Request) -> Response:
    results = {name: _run(check) for name, check in checks.items()}
    failed = {name: why for name, why in results.items() if why is not None}
    status = 503 if failed else 200
    if failed or "verbose" in request.query_params:
        lines = [f"[-] {name}: {why}" if why else f"[+] {name}" for name, why in results.items()]
        text = "\n".join([*lines, "failed" if failed else "ok"])
        return PlainTextResponse(text + "\n", status_code=status)
    return PlainTextResponse("ok\n")


def _run(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:  # a broken check is a failed check
        return f"the check itself failed: {error!r}"
