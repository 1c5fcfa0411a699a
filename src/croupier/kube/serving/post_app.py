"""A minimal ASGI application for JSON POST requests, as kube-scheduler and the API server send them.

The caller waits for every response, once per pod of a burst, so there is no framework in between.
Request bodies are limited in size and time, and large ones are read and processed a few at a time, fairly
between the addresses of the callers, before anything of them is parsed: that bounds memory, and how long a
small request waits. Every response has a Content-Length, because the client would
otherwise open a new connection for each request. Any other request gets a short error response.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from croupier.kube.serving.fair_slots import FairSlots, NoSlot, SlotLimits

BODY_TIMEOUT = 5.0
"""Seconds a request body may take to arrive; the client has timed out by then."""

SMALL_BODY = 64 * 1024
"""Bytes up to which a body is read at once: nearly all pods are smaller, and uvicorn buffers as much."""
LARGE_BODIES = SlotLimits(total=8, per_peer=4)
"""Larger bodies that are in memory at a time; the others wait."""

JSON: Final = (b"content-type", b"application/json")
TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
CLOSE: Final = (b"connection", b"close")

Header = tuple[bytes, bytes]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    content_type: Header = TEXT
    headers: tuple[Header, ...] = ()


Handler = Callable[[bytes], Awaitable[Reply]]
OnRefused = Callable[[str, int], None]


class _LargeBody:
    """A large body in memory; `reading` is the time limit while it arrives."""

    reading: asyncio.Timeout | None = None

    def stop(self) -> None:
        """Stop waiting for the rest; a body that has arrived is processed."""
        if self.reading is not None:
            self.reading.reschedule(asyncio.get_running_loop().time())


class HTTPError(Exception):
    """A request that is refused; carries the response."""

    def __init__(self, status: int, text: str, *headers: Header) -> None:
        super().__init__(text)
        self.reply = Reply(status, f"{text}\n".encode() if text else b"", headers=headers)


class PostApp:
    """An ASGI application with one handler per path."""

    def __init__(self, answers: Mapping[str, Handler], *, max_body: int, refused: OnRefused) -> None:
        """`max_body` is the maximum size in bytes; `refused` gets path and status of refused requests."""
        self._handlers = answers
        self._max_body = max_body
        self._refused = refused
        self._large: FairSlots[_LargeBody] = FairSlots(LARGE_BODIES)
        self._freed = asyncio.Event()
        self.closing = False
        """Set at shutdown: clients are asked to close the connection after their response."""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # uvicorn also accepts websockets
            await send({"type": "websocket.close"})
            return
        try:
            reply = await self._reply(scope, receive)
        except HTTPError as error:
            self._refused(scope["path"], error.reply.status)
            reply = error.reply
        await _send(reply, send, closing=self.closing)

    def _handler(self, scope: dict[str, Any]) -> Handler:
        if (handler := self._handlers.get(scope["path"])) is None:
            raise HTTPError(404, f"this server only has {' and '.join(self._handlers)}", CLOSE)
        if scope["method"] != "POST":
            raise HTTPError(405, "use POST", (b"allow", b"POST"), CLOSE)
        return handler

    async def _reply(self, scope: dict[str, Any], receive: Receive) -> Reply:
        respond, headers = self._handler(scope), dict(scope["headers"])
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != JSON[1]:
            raise HTTPError(415, "send application/json", CLOSE)
        length = headers.get(b"content-length", b"")
        size = int(length) if length.isdigit() else self._max_body
        if length.isdigit() and size > self._max_body:
            raise self._too_large()
        if size <= SMALL_BODY:
            return await respond(await self._in_time(receive))
        peer, holder = (scope.get("client") or ("",))[0], _LargeBody()
        try:
            return await respond(await self._in_time(receive, peer, holder))
        finally:
            self._large.release(peer, holder)
            self._freed.set()
            self._freed.clear()

    async def _in_time(self, receive: Receive, peer: str = "", holder: "_LargeBody | None" = None) -> bytes:
        """The body; a large one needs a slot before, which it may lose to another peer while it is read."""
        try:
            async with asyncio.timeout(BODY_TIMEOUT) as reading:
                if holder is not None:
                    holder.reading = reading
                    await self._slot(peer, holder)
                return await self._read(receive)
        except TimeoutError:
            raise HTTPError(408, f"the body took longer than {BODY_TIMEOUT:g} s", CLOSE) from None
        finally:
            if holder is not None:
                holder.reading = None

    async def _slot(self, peer: str, holder: "_LargeBody") -> None:
        while True:
            try:
                loser = self._large.take(peer, holder)
            except NoSlot:
                await self._freed.wait()
                continue
            if loser is not None:
                loser.stop()
            return

    async def _read(self, receive: Receive) -> bytes:
        message = await receive()
        body: bytes = message.get("body", b"")
        if message["type"] == "http.request" and not message.get("more_body") and len(body) <= self._max_body:
            return body  # the usual case: one message, not copied
        pieces = bytearray(body)
        while (
            message["type"] == "http.request" and message.get("more_body") and len(pieces) <= self._max_body
        ):
            message = await receive()
            pieces += message.get("body", b"")
        if len(pieces) > self._max_body:
            raise self._too_large()
        if message["type"] != "http.request":
            raise HTTPError(400, "", CLOSE)  # the client closed the connection
        return bytes(pieces)

    def _too_large(self) -> HTTPError:
        """The rest of the body is not read, so the connection cannot be reused."""
        return HTTPError(413, f"the body has more than {self._max_body} bytes", CLOSE)


async def _send(reply: Reply, send: Send, *, closing: bool) -> None:
    headers = [reply.content_type, (b"content-length", b"%d" % len(reply.body)), *reply.headers]
    if closing and CLOSE not in headers:
        headers.append(CLOSE)
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
