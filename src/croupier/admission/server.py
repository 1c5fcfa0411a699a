"""The webhooks as the API server reaches them: two POSTs over TLS.

`/mutate` repairs a pod. `/validate` sees it once more when everybody has had their hands on it, and
refuses what `/mutate` would refuse: a later webhook, or a client between the two, must not bring in
an annotation nobody could obey.

The API server waits while we think, for every pod of a burst. So this is ASGI without a framework, and
nothing here awaits but the body. Bodies are bounded in size and time, every answer has a
Content-Length, and whatever else is sent gets a short answer and does no harm.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog

from croupier.admission import review
from croupier.admission.review import AdmissionRequest, Unreadable, Verdict
from croupier.core.fallback import Note
from croupier.kube import serving
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.serving import Listen

LARGEST_BODY: Final = 7 * 1024 * 1024
"""Bytes: the API server takes objects up to 3 MiB, and a review may carry two of them."""
SLOWEST_BODY = 5.0
"""Seconds a body may take to arrive; the API server has given up by then."""
MUTATE: Final = "/mutate"
VALIDATE: Final = "/validate"
DRAIN: Final = 5.0
"""Seconds we go on answering after we stopped being ready: so long others may still come to us."""

_JSON: Final = (b"content-type", b"application/json")
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_CLOSE: Final = (b"connection", b"close")

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

log = structlog.get_logger(__name__)


class Mutator(Protocol):
    """Decides; reads nothing but memory, so that it need not be awaited."""

    def mutate(self, request: AdmissionRequest) -> Verdict: ...


class Notices(Protocol):
    """Hears what is worth telling about a pod that will exist, if nobody else objects."""

    def expect(self, request: AdmissionRequest, notes: tuple[Note, ...]) -> None: ...


class _Unheard:
    def expect(self, request: AdmissionRequest, notes: tuple[Note, ...]) -> None: ...


class Gauge(Protocol):
    def answered(self, webhook: str, outcome: str, seconds: float) -> None: ...
    def refused(self, webhook: str, outcome: str) -> None: ...
    def rewritten(self, before: str, after: str) -> None: ...


class _Unmeasured:
    def answered(self, webhook: str, outcome: str, seconds: float) -> None: ...
    def refused(self, webhook: str, outcome: str) -> None: ...
    def rewritten(self, before: str, after: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: bytes
    content_type: tuple[bytes, bytes] = _TEXT
    headers: tuple[tuple[bytes, bytes], ...] = ()


class _Odd(Exception):
    """A request that is no question to us; carries what to say to it."""

    def __init__(self, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(text)
        self.reply = _Reply(status, f"{text}\n".encode() if text else b"", headers=headers)


@dataclass(slots=True)
class Webhook:
    """`drain` is how long it goes on answering once it was asked to stop."""

    mutator: Mutator
    listen: Listen
    gauge: Gauge = field(default_factory=_Unmeasured)
    notices: Notices = field(default_factory=_Unheard)
    clock: Clock = field(default_factory=SystemClock)
    drain: float = DRAIN
    _answering: bool = field(init=False, default=False)
    _leaving: bool = field(init=False, default=False)

    def silent(self) -> str | None:
        """For a readiness check."""
        return None if self._answering else "not answering yet"

    async def run(self, stop: asyncio.Event, *, listening: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`; then go on a while, asking clients to hang up, and finish what was begun.

        `listening` is called when the first question can come.
        """
        async with self.serving():
            self._answering = True
            listening()
            await stop.wait()
            self._leaving = True
            await self.clock.sleep(self.drain)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Listen]:
        """Serve while the block runs; yields where, with the port that was really taken."""
        async with serving.serve(self, self.listen) as taken:
            log.info("serving admission reviews", url=taken.url)
            yield taken

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":  # uvicorn also offers websockets, where it can
            await send({"type": "websocket.close"})
            return
        try:
            answer = self._answers(scope)
            reply = answer(await _body(scope["headers"], receive))
        except _Odd as odd:
            self.gauge.refused(_label(scope["path"]), f"refused with {odd.reply.status}")
            reply = odd.reply
        await _send(reply, send, closing=self._leaving)

    def _answers(self, scope: dict[str, Any]) -> Callable[[bytes], _Reply]:
        answers = {MUTATE: self.mutate, VALIDATE: self.validate}
        if (found := answers.get(scope["path"])) is None:
            raise _Odd(404, f"there is nothing here but {MUTATE} and {VALIDATE}", _CLOSE)
        if scope["method"] != "POST":
            raise _Odd(405, "send an AdmissionReview by POST", (b"allow", b"POST"), _CLOSE)
        return found

    def mutate(self, body: bytes) -> _Reply:
        return self._review("mutate", body, _as_decided)

    def validate(self, body: bytes) -> _Reply:
        return self._review("validate", body, _refusal_only)

    def _review(self, webhook: str, body: bytes, shown: Callable[[Verdict], Verdict]) -> _Reply:
        began = self.clock.monotonic()
        asked = review.read(body)
        if isinstance(asked, Unreadable):
            log.warning("a review cannot be read", webhook=webhook, why=asked.sentence)
            self.gauge.answered(webhook, "unreadable", self.clock.monotonic() - began)
            return _Reply(asked.status, asked.body, _JSON if asked.is_review else _TEXT)
        try:
            verdict = shown(self.mutator.mutate(asked)) if asked.creates_a_pod else Verdict()
            reply = _Reply(200, review.answer(asked.uid, verdict), _JSON)
        except Exception as bug:  # a failed call: the API server goes by the failure policy
            log.exception("a review failed", webhook=webhook, uid=asked.uid, error=repr(bug))
            self.gauge.answered(webhook, "crashed", self.clock.monotonic() - began)
            return _Reply(500, b"the webhook failed on this review; its log says why\n")
        self.gauge.answered(webhook, _outcome(verdict), self.clock.monotonic() - began)
        if not asked.dry_run:
            self._tell(asked, verdict)
        return reply

    def _tell(self, asked: AdmissionRequest, verdict: Verdict) -> None:
        for before, after in verdict.fallbacks:
            self.gauge.rewritten(before, after)
        if verdict.allowed and verdict.events:
            self.notices.expect(asked, verdict.events)


def _as_decided(verdict: Verdict) -> Verdict:
    return verdict


def _refusal_only(verdict: Verdict) -> Verdict:
    """A validating webhook cannot change a pod, and its warnings were given already."""
    return Verdict() if verdict.allowed else Verdict(allowed=False, sentence=verdict.sentence)


def _outcome(verdict: Verdict) -> str:
    if not verdict.allowed:
        return "denied"
    return "changed" if verdict.operations else "unchanged"


def _label(path: str) -> str:
    return path[1:] if path in (MUTATE, VALIDATE) else "none"


async def _body(headers: Iterable[tuple[bytes, bytes]], receive: Receive) -> bytes:
    """All of it, unless it is too large, too slow or no JSON."""
    told = dict(headers)
    if told.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        raise _Odd(415, "send application/json", _CLOSE)
    announced = told.get(b"content-length", b"")
    if announced.isdigit() and int(announced) > LARGEST_BODY:
        raise _too_large()
    try:
        async with asyncio.timeout(SLOWEST_BODY):
            return await _gathered(receive)
    except TimeoutError:
        raise _Odd(408, f"the body took longer than {SLOWEST_BODY:g} seconds", _CLOSE) from None


async def _gathered(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body") and len(body) <= LARGEST_BODY:
        return body  # nearly always: one message, not copied
    pieces = bytearray(body)
    while message["type"] == "http.request" and message.get("more_body") and len(pieces) <= LARGEST_BODY:
        message = await receive()
        pieces += message.get("body", b"")
    if len(pieces) > LARGEST_BODY:
        raise _too_large()
    if message["type"] != "http.request":
        raise _Odd(400, "", _CLOSE)  # the client hung up
    return bytes(pieces)


def _too_large() -> _Odd:
    """The rest is not read, so the connection cannot be used again."""
    return _Odd(413, f"the body has more than {LARGEST_BODY} bytes", _CLOSE)


async def _send(reply: _Reply, send: Send, *, closing: bool) -> None:
    headers = [reply.content_type, (b"content-length", str(len(reply.body)).encode()), *reply.headers]
    if closing and _CLOSE not in headers:
        headers.append(_CLOSE)
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
