"""Questions in JSON, sent by POST, as kube-scheduler and the API server ask them: ASGI without a framework.

Somebody waits while we think, for every pod of a burst, so nothing stands between the server and the
answer. Bodies are bounded in size and time; every answer has a Content-Length, or the client would
open a new connection for each question; whatever else is sent gets a short answer and does no harm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

SLOWEST_BODY = 5.0
"""Seconds a body may take to arrive; whoever asks has given up by then."""

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


Respond = Callable[[bytes], Awaitable[Reply]]
Refused = Callable[[str, int], None]


class Odd(Exception):
    """A request that is no question to us; carries what to say to it."""

    def __init__(self, status: int, text: str, *headers: Header) -> None:
        super().__init__(text)
        self.reply = Reply(status, f"{text}\n".encode() if text else b"", headers=headers)


class Posts:
    """An ASGI application: a path, and who answers what is posted there."""

    def __init__(self, answers: Mapping[str, Respond], *, largest: int, refused: Refused) -> None:
        """`largest` is in bytes; `refused` hears the path and status of what was no question."""
        self._answers = answers
        self._largest = largest
        self._refused = refused
        self.closing = False
        """Ask clients to hang up after their answer: we are about to leave."""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # uvicorn also offers websockets, where it can
            await send({"type": "websocket.close"})
            return
        try:
            respond = self._who(scope)
            reply = await respond(await self._body(scope["headers"], receive))
        except Odd as odd:
            self._refused(scope["path"], odd.reply.status)
            reply = odd.reply
        await _send(reply, send, closing=self.closing)

    def _who(self, scope: dict[str, Any]) -> Respond:
        if (found := self._answers.get(scope["path"])) is None:
            raise Odd(404, f"there is nothing here but {' and '.join(self._answers)}", CLOSE)
        if scope["method"] != "POST":
            raise Odd(405, "ask by POST", (b"allow", b"POST"), CLOSE)
        return found

    async def _body(self, headers: Iterable[Header], receive: Receive) -> bytes:
        """All of it, unless it is too large, too slow or no JSON."""
        told = dict(headers)
        if told.get(b"content-type", b"").partition(b";")[0].strip().lower() != JSON[1]:
            raise Odd(415, "send application/json", CLOSE)
        announced = told.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._largest:
            raise self._too_large()
        try:
            async with asyncio.timeout(SLOWEST_BODY):
                return await self._gathered(receive)
        except TimeoutError:
            raise Odd(408, f"the body took longer than {SLOWEST_BODY:g} seconds", CLOSE) from None

    async def _gathered(self, receive: Receive) -> bytes:
        message = await receive()
        body: bytes = message.get("body", b"")
        if message["type"] == "http.request" and not message.get("more_body") and len(body) <= self._largest:
            return body  # nearly always: one message, not copied
        pieces = bytearray(body)
        while message["type"] == "http.request" and message.get("more_body") and len(pieces) <= self._largest:
            message = await receive()
            pieces += message.get("body", b"")
        if len(pieces) > self._largest:
            raise self._too_large()
        if message["type"] != "http.request":
            raise Odd(400, "", CLOSE)  # the client hung up
        return bytes(pieces)

    def _too_large(self) -> Odd:
        """The rest is not read, so the connection cannot be used again."""
        return Odd(413, f"the body has more than {self._largest} bytes", CLOSE)


async def _send(reply: Reply, send: Send, *, closing: bool) -> None:
    headers = [reply.content_type, (b"content-length", b"%d" % len(reply.body)), *reply.headers]
    if closing and CLOSE not in headers:
        headers.append(CLOSE)
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
