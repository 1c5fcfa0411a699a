"""Accepts the connections of a server, within limits that hold before TLS and before anything is parsed.

A pod that reaches the port can open connections, send slowly or send much. The number of connections is
limited in total and per peer address; a peer without a connection always gets one, at the expense of the peer
that has the most. New connections of a peer are limited in rate, because each costs a TLS handshake. The
handshake and the headers of a request must arrive in time, and the headers in a limited size.

The limits are far above what one API server, kube-scheduler, Prometheus or ingress controller needs, because
several of them may share an address behind network address translation.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, Final, cast

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from croupier.kube.controller.rate_limit import RateLimit, TokenBuckets
from croupier.kube.serving.fair_slots import FairSlots, NoSlot, SlotLimits

CONNECTIONS: Final = SlotLimits(total=1024, per_peer=768)
"""An API server runs at most 200 mutating requests at a time by default, each on one connection; three API
servers behind one address need 600."""
NEW_CONNECTIONS: Final = RateLimit(per_second=300, burst=1500)
"""Connections that one peer may open: Go's clients keep 25 idle, and open the others of a burst again."""
MAX_PEERS: Final = 10_000
ACCEPTED_AT_ONCE: Final = 256
"""Connections accepted before open ones are served again."""
HANDSHAKE_TIMEOUT: Final = 10.0
HEADER_TIMEOUT: Final = 10.0
"""Seconds until the headers of a request must be complete."""
MAX_HEADERS: Final = 64 * 1024
"""Bytes of the headers of a request."""
RETRY_ACCEPT: Final = 0.1
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER for a connection that is closed without waiting for the peer."""

log = structlog.get_logger(__name__)


class _Connection:
    """One accepted connection, from before its handshake until it is closed."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self.socket = sock
        self.peer = peer
        self.transport: asyncio.BaseTransport | None = None
        self.opening: asyncio.Task[None] | None = None

    def abort(self) -> None:
        if self.opening is not None:
            self.opening.cancel()
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()


class Acceptor:
    """`server` is started without sockets. `names` are those of accepted client certificates; empty: all."""

    def __init__(
        self,
        listener: socket.socket,
        server: uvicorn.Server,
        *,
        context: ssl.SSLContext | None,
        names: frozenset[str],
    ) -> None:
        self._listener = listener
        self._server = server
        self._context = context
        self._names = names
        self._slots: FairSlots[_Connection] = FairSlots(CONNECTIONS)
        self._rates: TokenBuckets[str] = TokenBuckets(MAX_PEERS)
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept until cancelled; then no connection is opened any more."""
        accepted = 0
        try:
            while True:
                try:
                    sock, address = await self._loop.sock_accept(self._listener)
                except OSError as error:  # for example too many open files: serve the open connections first
                    log.warning(f"the server cannot accept a connection: {error}", error=str(error))
                    await asyncio.sleep(RETRY_ACCEPT)
                    continue
                self._admit(_Connection(sock, address[0]))
                accepted += 1
                if accepted % ACCEPTED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            for task in self._opening:
                task.cancel()

    def _admit(self, connection: _Connection) -> None:
        allowed = self._rates.of(connection.peer, NEW_CONNECTIONS).allows(self._loop.time())
        try:
            if not allowed:
                raise NoSlot(f"{connection.peer} opens connections too fast")
            loser = self._slots.take(connection.peer, connection)
        except NoSlot as refusal:
            log.debug(
                f"the server refused a connection of {connection.peer}",
                peer=connection.peer,
                reason=str(refusal),
            )
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.socket.close()
            return
        if loser is not None:
            log.debug(
                f"the server closed a connection of {loser.peer} in favour of another peer", peer=loser.peer
            )
            loser.abort()
        connection.opening = task = self._loop.create_task(self._open(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, connection: _Connection) -> None:
        """Complete the TLS handshake, if there is TLS; then the protocol has the connection."""
        try:
            connection.transport, _ = await self._loop.connect_accepted_socket(
                lambda: self._protocol(connection),
                connection.socket,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT if self._context else None,
            )
        except OSError as error:  # includes TLS errors and the timeout
            log.debug(
                f"a connection of {connection.peer} was not established",
                peer=connection.peer,
                error=str(error),
            )
            self._slots.release(connection.peer, connection)
        except asyncio.CancelledError:
            self._slots.release(connection.peer, connection)
            connection.socket.close()
            raise
        finally:
            connection.opening = None

    def _protocol(self, connection: _Connection) -> asyncio.Protocol:
        return BoundedProtocol(
            self._server,
            names=self._names,
            closed=lambda: self._slots.release(connection.peer, connection),
        )


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits for headers, and with each response sent in one write: separate writes
    of headers and body cost two system calls and wake the client twice.
    """

    def __init__(self, server: uvicorn.Server, *, names: frozenset[str], closed: Callable[[], None]) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._names = names
        self._closed = closed
        self._deadline: asyncio.TimerHandle | None = None
        self._in_headers = False
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client may keep a new connection for later, as it may keep one after a response."""
        super().connection_made(cast("asyncio.Transport", _BufferingTransport(transport, self.loop)))
        if self._names and not (given := _names_of(transport)) & self._names:
            log.warning(
                "the server refused a client certificate with another name",
                names=sorted(given),
                accepted=sorted(self._names),
            )
            transport.abort()
        else:
            self._close_after(self.timeout_keep_alive, "no request arrived")

    def data_received(self, data: bytes) -> None:
        cycle: Any = self.cycle  # None before the first request, unlike its type
        if not self._in_headers and (cycle is None or cycle.response_complete):
            self._in_headers, self._header_bytes = True, 0
            self._close_after(HEADER_TIMEOUT, "the headers of a request did not arrive in time")
        super().data_received(data)
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADERS:
                self._refuse("the headers of a request are too large")

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._cancel_deadline()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._closed()
        super().connection_lost(exc)

    def _close_after(self, seconds: float, why: str) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(seconds, self._refuse, why)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, why: str) -> None:
        log.debug(f"the server closed a connection of {self.client}", reason=why, peer=self.client)
        self._cancel_deadline()
        self.transport.abort()


class _BufferingTransport:
    """A transport that joins all writes of one event-loop iteration."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, chunk: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(chunk)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._pieces:
            chunks, self._pieces = self._pieces, []
            self._transport.write(b"".join(chunks))


def _names_of(transport: asyncio.BaseTransport) -> frozenset[str]:
    """The common name and the DNS names of the peer's certificate, which the handshake has verified."""
    certificate: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        certificate = transport.get_extra_info("peercert") or {}
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    names = (value for key, value in subject if key == "commonName")
    return frozenset(
        [*names, *(value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")]
    )
