"""Serves HTTP in our event loop and leaves signals to `run`: plain, or TLS for clients we know.

With TLS a client must show a certificate that our authority signed. Certificates are rotated in
place: new connections get the new one, without a restart.
"""

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
import uvicorn
from starlette.applications import Starlette

from croupier.kube.errors import KubeError

RENEWAL = 30.0
"""Seconds between looks at the certificate files."""
GRACE = 5
"""Seconds that requests under way have to end."""

log = structlog.get_logger(__name__)


class CannotListen(KubeError):
    """The address cannot be used; says why and what to do."""


class BadCertificate(KubeError):
    """The files for TLS cannot be used; says which and why."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


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


def parse(address: str) -> Address:
    """`:8080`, `127.0.0.1:8080`, `[::1]:8080`; port 0 takes a free one."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"address {address!r} is not HOST:PORT, for example :8080 or 127.0.0.1:8080")
    return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104  # a pod is asked from outside


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.asynccontextmanager
async def serve(application: Starlette, listen: Listen) -> AsyncIterator[Listen]:
    """Serve while the block runs; yields where, with the port that was really taken."""
    context = None if listen.tls is None else _context(listen.tls)
    listener = _listener(listen.address)
    config = uvicorn.Config(
        application, lifespan="off", access_log=False, log_config=None, timeout_graceful_shutdown=GRACE
    )
    config.load()
    config.ssl = context
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    serving = asyncio.create_task(server.main_loop())
    renewing = asyncio.create_task(_renew(listen.tls, context)) if listen.tls and context else None
    try:
        yield replace(listen, address=Address(*listener.getsockname()[:2]))
    finally:
        if renewing is not None:
            renewing.cancel()
        server.should_exit = True
        await serving
        await server.shutdown(sockets=[listener])


def _listener(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family, backlog=512)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {address}: {os.strerror(error.errno or 0)}; choose another address or port"
        ) from error
    # asyncio turns Nagle's algorithm off only for sockets that name their protocol, and this one does not:
    # the body of each answer would wait 40 ms until the client has acknowledged its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
