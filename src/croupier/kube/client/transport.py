"""HTTP requests to the API server with TLS, credentials and timeouts, without retries or kinds.

Responses are requested uncompressed: decompression costs more than a local network saves.
"""

import asyncio
import contextlib
import copy
import errno
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from multidict import CIMultiDict

from croupier.kube.client import errors
from croupier.kube.client.clock import Clock
from croupier.kube.client.config import Config
from croupier.kube.client.credentials import Credential, Credentials
from croupier.kube.client.errors import ConfigError, Unreachable
from croupier.kube.client.server_clock import ServerClock

CONNECT_TIMEOUT = 10.0
"""Seconds that a new connection may take."""
CLOSE_DELAY = 0.05
"""Seconds until TLS connections are closed, too."""


class NeverSent(Unreachable):
    """No connection was established, so the API server never received the request."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class ApiResponse:
    status: int
    body: bytes
    retry_after: str | None = None


class Transport:
    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self.clock = ServerClock(clock)
        self._credentials = Credentials(config.auth, clock)
        self._contexts: dict[Credential, ssl.SSLContext | bool] = {}
        self._session = _new_session()
        self._separate: list[Transport] = []

    @property
    def server(self) -> str:
        return self._config.server

    def separate(self) -> "Transport":
        """The same API server and credentials with connections of its own, which close with this one's."""
        separate = copy.copy(self)
        separate._session = _new_session()
        self._separate.append(separate)
        return separate

    async def close(self) -> None:
        """Close all connections; abandoned TLS connections need a moment."""
        for session in (self._session, *(separate._session for separate in self._separate)):
            if session.connector is not None:
                await session.connector.close(abort_ssl=True)
            await session.close()
        await asyncio.sleep(CLOSE_DELAY)

    async def send(self, request: ApiRequest, *, timeout: float) -> ApiResponse:  # noqa: ASYNC109  # aiohttp's own deadline
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        async with self._open(request, limits) as response:
            body = await response.read()
            return ApiResponse(response.status, body, response.headers.get("Retry-After"))

    @contextlib.asynccontextmanager
    async def stream(
        self, request: ApiRequest, *, idle_timeout: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The response in chunks as they arrive; raises Unreachable after `idle_timeout` idle seconds."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=idle_timeout)
        async with self._open(request, limits) as response:
            if response.status >= 300:
                raise errors.from_response(
                    response.status,
                    await response.read(),
                    retry_after=response.headers.get("Retry-After"),
                    request=str(request),
                )
            yield response.content.iter_any()

    @contextlib.asynccontextmanager
    async def _open(
        self, request: ApiRequest, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        credential, sent = await self._credentials.current(), self.clock.monotonic()
        with self._failures(request, limits):
            async with self._begin(request, limits, credential) as response:
                self.clock.observe(response.headers.get("Date"), sent=sent)
                if response.status != 401 or not self._credentials.refused(credential):
                    yield response
                    return
        credential = await self._credentials.current()
        with self._failures(request, limits):
            async with self._begin(request, limits, credential) as response:
                yield response

    def _begin(
        self, request: ApiRequest, limits: aiohttp.ClientTimeout, credential: Credential
    ) -> "aiohttp.client._RequestContextManager":
        return self._session.request(
            request.method,
            self._config.server + request.path,
            params=request.query,
            data=request.body,
            headers=self._headers(request, credential),
            timeout=limits,
            allow_redirects=False,
            ssl=self._context(credential),
            server_hostname=self._config.tls_server_name,
            proxy=self._config.proxy,
        )

    def _headers(self, request: ApiRequest, credential: Credential) -> CIMultiDict[str]:
        headers = CIMultiDict({"Accept": request.accept, "User-Agent": "croupier"})
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if credential.authorization:
            headers["Authorization"] = credential.authorization
        for name, values in self._config.impersonate.items():
            for value in values:
                headers.add(name, value)
        return headers

    def _context(self, credential: Credential) -> ssl.SSLContext | bool:
        if not self._config.server.startswith("https:"):
            return True
        certificate = Credential(None, credential.certificate, credential.key)
        if certificate not in self._contexts:
            self._contexts = {certificate: tls(self._config, certificate)}
        return self._contexts[certificate]

    @contextlib.contextmanager
    def _failures(self, request: ApiRequest, limits: aiohttp.ClientTimeout) -> Iterator[None]:
        """Convert errors of aiohttp to KubeErrors that name the API server."""
        try:
            yield
        except aiohttp.ClientConnectorCertificateError as bad:
            raise ConfigError(
                f"{self.server} has a certificate that {self._config.source} does not trust: "
                f"{bad.certificate_error}"
            ) from bad
        except aiohttp.ClientConnectorError as bad:
            raise NeverSent(f"cannot reach {self.server}: {_reason(bad.os_error)}") from bad
        except aiohttp.ConnectionTimeoutError as bad:
            raise NeverSent(
                f"cannot reach {self.server}: no connection within {CONNECT_TIMEOUT:g} s"
            ) from bad
        except TimeoutError as bad:
            seconds = limits.total or limits.sock_read or 0.0
            raise Unreachable(f"{self.server} did not answer {request} within {seconds:g} s") from bad
        except (aiohttp.ClientError, ConnectionError, OSError) as bad:
            raise Unreachable(
                f"{request} at {self.server} was interrupted: {str(bad) or type(bad).__name__}"
            ) from bad


def _reason(error: OSError) -> str:
    """`Connection refused`, without the address that asyncio adds to it."""
    known = error.errno is not None and error.errno in errno.errorcode
    return os.strerror(error.errno) if known and error.errno is not None else str(error.strerror or error)


def _new_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        auto_decompress=False,
        skip_auto_headers=("Accept-Encoding",),
    )


def tls(config: Config, credential: Credential) -> ssl.SSLContext:
    """The TLS context of a connection: trusted authorities and the client certificate."""
    try:
        context = ssl.create_default_context(cadata=config.ca.decode() if config.ca else None)
    except (ssl.SSLError, UnicodeDecodeError) as bad:
        raise ConfigError(f"the certificate authority of {config.source} is not valid PEM: {bad}") from bad
    context.set_alpn_protocols(["http/1.1"])
    # Newer Pythons refuse authorities without a key identifier; many clusters have one, and Go accepts it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = credential.certificate or config.certificate, credential.key or config.key
    if certificate is None:
        return context
    if key is None:
        raise ConfigError(f"{config.source} has a client certificate without its key; add client-key")
    with tempfile.TemporaryDirectory() as folder:  # the ssl module reads files only; 0700, gone at once
        pair = Path(folder) / "pair.pem"
        pair.write_bytes(certificate + b"\n" + key)
        try:
            context.load_cert_chain(pair)
        except ssl.SSLError as bad:
            raise ConfigError(f"the client certificate of {config.source} cannot be used: {bad}") from bad
    return context
