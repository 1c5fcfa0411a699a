"""Serves HTTP in our event loop and leaves signals to `run`: plain, TLS for clients we know, or TLS for all.

With `TLS` the certificate comes from files, and a client must show one that our authority signed. With
`Rotating` it is handed in, and anybody may ask. Either is replaced in place: new connections get the
new one without a restart, and open ones go on.
"""

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from croupier.kube.errors import KubeError

RENEWAL = 30.0
"""Seconds between looks at the certificate files."""
GRACE = 5
"""Seconds that requests under way have to end."""
KEEP_ALIVE = 120
"""Seconds an idle connection is kept: longer than Go's clients keep theirs (90). Were we the first to hang
up, a question sent at that moment would be lost, and nobody repeats a POST."""

Application = Any
"""Anything that speaks ASGI; uvicorn's own types are private."""

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


class Rotating:
    """A certificate that its owner replaces while it serves."""

    def __init__(self) -> None:
        self.context = _server_context()
        self.loaded = False

    def replace(self, certificate: bytes, key: bytes) -> None:
        """Serve new connections with this chain, both in PEM. What does not fit together changes nothing."""
        with _as_files(certificate, key) as (chain, secret):
            try:
                _server_context().load_cert_chain(chain, secret)  # a failed load would leave half of it
                self.context.load_cert_chain(chain, secret)
            except (OSError, ssl.SSLError) as bad:
                raise BadCertificate(f"this certificate and key cannot be served: {bad}") from bad
        self.loaded = True


@dataclass(frozen=True, slots=True)
class Listen:
    address: Address
    tls: TLS | Rotating | None = None

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
async def serve(application: Application, listen: Listen) -> AsyncIterator[Listen]:
    """Serve while the block runs; yields where, with the port that was really taken."""
    tls = listen.tls
    context = _context(tls) if isinstance(tls, TLS) else tls.context if tls else None
    listener = _listener(listen.address)
    server = await _started(application, context, listener)
    serving = asyncio.create_task(server.main_loop())
    renewing = asyncio.create_task(_renew(tls, context)) if isinstance(tls, TLS) and context else None
    try:
        yield replace(listen, address=Address(*listener.getsockname()[:2]))
    finally:
        if renewing is not None:
            renewing.cancel()
        server.should_exit = True
        await serving
        await server.shutdown(sockets=[listener])


async def _started(
    application: Application, context: ssl.SSLContext | None, listener: socket.socket
) -> uvicorn.Server:
    config = uvicorn.Config(
        application,
        http=_OneWrite,
        lifespan="off",
        access_log=False,
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    config.load()
    config.ssl = context
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    return server


class _OneWrite(HttpToolsProtocol):
    """uvicorn's protocol, whose answers leave in one piece: headers and body written one after the other cost
    us two system calls, and wake the client twice.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(cast("asyncio.Transport", _Gathering(transport, self.loop)))


class _Gathering:
    """A transport that sends what is written in one turn of the event loop at the end of it."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, piece: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(piece)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            self._transport.write(b"".join(pieces))


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
    context = _client_checking()
    _load(context, tls)
    return context


def _client_checking() -> ssl.SSLContext:
    context = _server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, tls: TLS) -> None:
    """Tried on the side first: a load that fails half-way would leave a certificate without its key."""
    try:
        for one in (_client_checking(), context):
            one.load_cert_chain(tls.certificate, tls.key)
            one.load_verify_locations(tls.client_authority)
    except (OSError, ssl.SSLError) as bad:
        files = f"{tls.certificate}, {tls.key} and {tls.client_authority}"
        raise BadCertificate(f"TLS cannot be served with {files}: {bad}") from bad


@contextlib.contextmanager
def _as_files(certificate: bytes, key: bytes) -> Iterator[tuple[str, str]]:
    """OpenSSL reads files only. In memory where that can be: what is on a disk stays there."""
    if not hasattr(os, "memfd_create"):
        with TemporaryDirectory() as folder:
            chain, secret = Path(folder, "tls.crt"), Path(folder, "tls.key")
            chain.write_bytes(certificate)
            secret.write_bytes(key)
            yield str(chain), str(secret)
        return
    with contextlib.ExitStack() as files:
        paths = []
        for content in (certificate, key):
            file = files.enter_context(open(os.memfd_create("tls"), "wb", buffering=0))
            file.write(content)
            paths.append(f"/proc/self/fd/{file.fileno()}")
        yield paths[0], paths[1]


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
