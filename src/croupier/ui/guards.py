"""Refuses requests that other sites, other hosts or too eager clients send, and adds the security headers.

Pure ASGI, because the stream must not be buffered. Everything below /api needs a session, whatever a route
forgets; a refused request is answered with one sentence and reaches no route.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import KubeError
from croupier.kube.controller.rate_limit import RateLimit, TokenBuckets
from croupier.kube.serving.http_server import Address, is_loopback
from croupier.ui.viewer import Authenticator, Unauthenticated, Viewer

# No Strict-Transport-Security: it would bind every service of the host name, so it belongs to the Ingress.
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
MAX_BODY: Final = 256 * 1024
BODY_SECONDS: Final = 30.0
REQUESTS: Final = RateLimit(50, 200)
"""Requests of one user: a page load needs about twenty at once."""
WRITES: Final = RateLimit(10, 10)
"""Actions and previews, each of which writes or tries a write at the API server."""
SIGN_INS: Final = RateLimit(5, 20)
"""Attempts to sign in, of all users together."""
MAX_USERS: Final = 10_000
_WRITING: Final = ("/api/v1/act", "/api/v1/preview")
_SIGNING_IN: Final = ("/login", "/open/")
_METHODS: Final = ("GET", "HEAD", "POST")

RefusalReason: TypeAlias = Literal["host", "method", "origin", "header", "body", "session", "rate", "api"]

log = structlog.get_logger(__name__)


class RefusedRequest(Exception):
    """The text is the sentence for the user."""

    def __init__(self, reason: RefusalReason, sentence: str, status: int = 403) -> None:
        super().__init__(sentence)
        self.reason: RefusalReason = reason
        self.status = status


def local_hosts(server: Address) -> frozenset[str]:
    """The Host headers of a page that listens on loopback; any other name was made to point here."""
    return frozenset({str(server), f"localhost:{server.port}"}) if is_loopback(server.host) else frozenset()


@dataclass(slots=True)
class RateLimits:
    """Token buckets by user and kind of request."""

    _buckets: TokenBuckets[tuple[str, str]] = field(default_factory=lambda: TokenBuckets(MAX_USERS))

    def check(self, user: str, what: str, rate: RateLimit, now: float) -> None:
        if not self._buckets.of((user, what), rate).allows(now):
            raise RefusedRequest(
                "rate",
                f"too many {what}: at most {rate.per_second:g} per second are allowed; try again in a moment",
                429,
            )


class Guards:
    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        *,
        hosts: Collection[str] = (),
        refused: Callable[[str], None] = lambda reason: None,
        clock: Clock | None = None,
    ) -> None:
        """`hosts` are the accepted Host headers; without them any, but in mode local only the listen address.

        `refused` counts refusals by reason.
        """
        self._app = app
        self._authenticator = authenticator
        self._hosts = frozenset(host.lower() for host in hosts)
        self._refused = refused
        self._clock = clock or SystemClock()
        self._limits = RateLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        send = _with_headers(send, is_data=not _is_file(scope["path"]))
        try:
            receive = await self._admit(scope, receive)
        except RefusedRequest as refusal:
            self._refused(refusal.reason)
            log.info(
                f"the page refused a request: {refusal.reason}",
                reason=refusal.reason,
                status=refusal.status,
                **_described(scope),
            )
            answer = {"error": str(refusal)}
            if refusal.reason == "session":
                answer["mode"] = self._authenticator.mode  # tells the browser how to sign in
            await JSONResponse(answer, refusal.status)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        headers, path = Headers(scope=scope), scope["path"]
        self._check_host(headers, scope)
        _check_method(scope["method"])
        _check_site(headers, path)
        now = self._clock.monotonic()
        if path.startswith(_SIGNING_IN):
            self._limits.check("", "sign-ins", SIGN_INS, now)
        if path.startswith("/api/"):
            viewer = await self._viewer(Request(scope))
            self._limits.check(viewer.user, "requests", REQUESTS, now)
            if path in _WRITING:
                self._limits.check(viewer.user, "actions", WRITES, now)
        if scope["method"] != "POST":
            return receive
        _check_post(headers)
        return _replayed(await _body(receive), receive)

    def _check_host(self, headers: Headers, scope: Scope) -> None:
        given = headers.getlist("host")
        accepted: Collection[str] | None = self._hosts or None
        if accepted is None and self._authenticator.mode == "local":
            accepted = local_hosts(Address(*(scope.get("server") or ("", 0))))
        if len(given) != 1 or (accepted is not None and given[0].lower() not in accepted):
            raise RefusedRequest(
                "host",
                "the page is not served under this name; use the address that it prints at its start",
                421,
            )

    async def _viewer(self, request: Request) -> Viewer:
        try:
            return await self._authenticator.viewer(request)
        except Unauthenticated as reason:
            raise RefusedRequest("session", str(reason), 401) from reason
        except KubeError as error:
            raise RefusedRequest("api", f"the API server does not answer: {error}", 502) from error


def _check_method(method: str) -> None:
    if method not in _METHODS:
        raise RefusedRequest("method", "this method is not used by the page", 405)


def _check_site(headers: Headers, path: str) -> None:
    """Data is for the page itself. Links from other sites may only open the page."""
    site = headers.get("sec-fetch-site")
    if path.startswith("/api/") and site in ("cross-site", "same-site"):
        raise RefusedRequest("origin", "another site sent this request; use the page itself")


def _check_post(headers: Headers) -> None:
    """Neither a form nor a script of another site can send this header and this type."""
    if headers.get("x-croupier") != "1":
        raise RefusedRequest("header", "the request needs the header X-Croupier: 1")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedRequest("header", "the request must have the content type application/json", 415)
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    is_same = origin is not None and urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    if site != "same-origin" and (site is not None or not is_same):
        raise RefusedRequest("origin", "another site sent this request; use the page itself")


async def _body(receive: Receive) -> bytes:
    """The whole body, which must be empty or JSON."""
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while (message := await receive())["type"] == "http.request":
                body += message.get("body", b"")
                if len(body) > MAX_BODY:
                    raise RefusedRequest("body", f"the request is larger than {MAX_BODY // 1024} KiB", 413)
                if not message.get("more_body", False):
                    break
    except TimeoutError as late:
        raise RefusedRequest("body", f"the request was not complete after {BODY_SECONDS:g} s", 408) from late
    try:
        if body:
            msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as bad:
        raise RefusedRequest("body", f"the body of the request is not valid JSON: {bad}", 400) from bad
    return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _is_file(path: str) -> bool:
    """Files of the page may be cached; they contain no data."""
    return not path.startswith(("/api/", "/open/", "/login", "/logout"))


def _with_headers(send: Send, *, is_data: bool) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(SECURITY_HEADERS)
            if is_data:
                headers["Cache-Control"] = "no-store"
        await send(message)

    return guarded


def _described(scope: Scope) -> dict[str, Any]:
    """Method and path for the log: never the query or the one-time code, which may be secrets."""
    path = "/open/..." if scope["path"].startswith("/open/") else scope["path"][:128]
    return {"method": scope["method"], "path": path}
