"""An HTTP server in the process's event loop: plain, with TLS, or with mutual TLS. `process` handles signals.

With `TLS` the certificate comes from files, with `RotatingCertificate` it is set by its owner. With an
authority, clients need a certificate of it. Both are replaced without a restart: new connections get the
new certificate, open ones continue. What a peer may use of the server is limited in `connections`.
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
from typing import Any

import structlog
import uvicorn

from croupier.kube.client.errors import KubeError
from croupier.kube.serving.connections import Acceptor, BoundedProtocol

CERTIFICATE_POLL = 30.0
"""Seconds between checks of the certificate files."""
SHUTDOWN_GRACE = 5
"""Seconds that requests in flight have to finish at shutdown."""
KEEP_ALIVE = 120
"""Seconds an idle connection is kept: longer than Go's clients keep theirs (90). If the server closed first,
a request sent at that moment would be lost, and clients do not retry a POST."""

Application = Any
"""An ASGI application; uvicorn's types are private."""

log = structlog.get_logger(__name__)


class CannotListen(KubeError):
    """The address cannot be used; the message has the reason and the remedy."""


class BadCertificate(KubeError):
    """The TLS files cannot be used; the message names them and the reason."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TLS:
    """The server's certificate and key, and the authority that signs client certificates.

    Without an authority clients are not authenticated.
    """

    certificate: Path
    key: Path
    client_authority: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        named = (self.certificate, self.key, self.client_authority)
        return tuple(path for path in named if path is not None)


class RotatingCertificate:
    """A certificate that its owner replaces at run time.

    The authority of client certificates is read again with each replacement.
    """

    def __init__(self, client_authority: Path | None = None) -> None:
        self.context = _server_context()
        self.client_authority = client_authority
        self.loaded = False

    def replace(self, certificate: bytes, key: bytes) -> None:
        """Serve new connections with this chain and key, both in PEM. An invalid pair changes nothing."""
        with _as_files(certificate, key) as (chain, secret):
            try:
                for target in (_server_context(), self.context):  # a failed load would leave a partial state
                    target.load_cert_chain(chain, secret)
                    _require_clients(target, self.client_authority)
            except (OSError, ssl.SSLError) as bad:
                raise BadCertificate(f"the certificate and key cannot be loaded: {bad}") from bad
        self.loaded = True


@dataclass(frozen=True, slots=True)
class ListenOptions:
    address: Address
    tls: TLS | RotatingCertificate | None = None
    client_names: frozenset[str] = frozenset()
    """Names of accepted client certificates; all of the authority if it is empty."""

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}"


def parse(address: str) -> Address:
    """Parse `:8080`, `127.0.0.1:8080` or `[::1]:8080`; port 0 means any free port."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"address {address!r} is not HOST:PORT, for example :8080 or 127.0.0.1:8080")
    return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104  # a pod is reached from outside


def is_loopback(host: str) -> bool:
    """Whether the host is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.asynccontextmanager
async def serve(application: Application, listen: ListenOptions) -> AsyncIterator[ListenOptions]:
    """Serve while the block runs; yields the address with the actual port."""
    tls = listen.tls
    context = _context(tls) if isinstance(tls, TLS) else tls.context if tls else None
    listener = _listener(listen.address)
    server = await _start_server(application)
    serving = asyncio.create_task(server.main_loop())
    acceptor = Acceptor(listener, server, context=context, names=listen.client_names)
    accepting = asyncio.create_task(acceptor.run())
    renewing = asyncio.create_task(_renew(tls, context)) if isinstance(tls, TLS) and context else None
    try:
        yield replace(listen, address=Address(*listener.getsockname()[:2]))
    finally:
        if renewing is not None:
            renewing.cancel()
        accepting.cancel()
        await asyncio.wait({accepting})
        server.should_exit = True
        await serving
        await server.shutdown(sockets=[listener])


async def _start_server(application: Application) -> uvicorn.Server:
    """Without a socket: the acceptor gives it the connections."""
    config = uvicorn.Config(
        application,
        http=BoundedProtocol,
        lifespan="off",
        access_log=False,
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=SHUTDOWN_GRACE,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[])
    return server


def _listener(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family, backlog=512)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {address}: {os.strerror(error.errno or 0)}; choose another address or port"
        ) from error
    # asyncio disables Nagle's algorithm only for sockets with an explicit protocol, which this one is not:
    # the body of each response would wait 40 ms until the client has acknowledged the headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def _context(tls: TLS) -> ssl.SSLContext:
    context = _server_context()
    _load(context, tls)
    return context


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, tls: TLS) -> None:
    """Tried on a new context first: a partly failed load would leave a certificate without its key."""
    try:
        for target in (_server_context(), context):
            target.load_cert_chain(tls.certificate, tls.key)
            _require_clients(target, tls.client_authority)
    except (OSError, ssl.SSLError) as bad:
        files = ", ".join(map(str, tls.files))
        raise BadCertificate(f"cannot load the TLS files {files}: {bad}") from bad


def _require_clients(context: ssl.SSLContext, authority: Path | None) -> None:
    if authority is not None:
        context.load_verify_locations(authority)
        context.verify_mode = ssl.CERT_REQUIRED


@contextlib.contextmanager
def _as_files(certificate: bytes, key: bytes) -> Iterator[tuple[str, str]]:
    """OpenSSL only reads files. Use in-memory files if possible, so that the key is never on a disk."""
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
    seen = _mtimes(tls)
    while True:
        await asyncio.sleep(CERTIFICATE_POLL)
        if (now := _mtimes(tls)) == seen:
            continue
        try:
            _load(context, tls)
            seen = now
            log.info(f"the server loaded the new certificate {tls.certificate}", path=str(tls.certificate))
        except BadCertificate as bad:  # partly written: keep the old one until the next check
            log.warning(f"the server keeps its certificate: {bad}", error=str(bad))


def _mtimes(tls: TLS) -> tuple[int, ...]:
    return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in tls.files)
