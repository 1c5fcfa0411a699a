"""The webhooks as the API server reaches them: four POSTs over TLS.

`/mutate` repairs a pod. `/validate` sees it once more when everybody has had their hands on it, and
refuses what `/mutate` would refuse: a later webhook, or a client between the two, must not bring in
an annotation nobody could obey. `/access` and `/access/validate` are the same for pods that ask for a
pool. The API server waits while we think, so nothing here awaits anything.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from croupier.admission import review
from croupier.admission.review import AdmissionRequest, Unreadable, Verdict
from croupier.core.fallbacks.fallback import Note
from croupier.kube import serving
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.posting import JSON, TEXT, Posts, Reply
from croupier.kube.serving import Listen

LARGEST_BODY: Final = 7 * 1024 * 1024
"""Bytes: the API server takes objects up to 3 MiB, and a review may carry two of them."""
MUTATE: Final = "/mutate"
VALIDATE: Final = "/validate"
ACCESS: Final = "/access"
ACCESS_VALIDATE: Final = "/access/validate"
PATHS: Final = (MUTATE, VALIDATE, ACCESS, ACCESS_VALIDATE)
DRAIN: Final = 5.0
"""Seconds we go on answering after we stopped being ready: so long others may still come to us."""

log = structlog.get_logger(__name__)


class Mutator(Protocol):
    """Decides; reads nothing but memory, so that it need not be awaited."""

    def mutate(self, request: AdmissionRequest) -> Verdict: ...


class _Closed:
    """Stands where nobody guards the pools: better no pod in them than anybody's."""

    def mutate(self, request: AdmissionRequest) -> Verdict:
        return Verdict(
            allowed=False, sentence=f"nobody decides here who may use a pool ({request.operation})"
        )


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


@dataclass(slots=True)
class Webhook:
    """`drain` is how long it goes on answering once it was asked to stop."""

    mutator: Mutator
    listen: Listen
    guard: Mutator = field(default_factory=_Closed)
    """Decides about pods that ask for a pool."""
    gauge: Gauge = field(default_factory=_Unmeasured)
    notices: Notices = field(default_factory=_Unheard)
    clock: Clock = field(default_factory=SystemClock)
    drain: float = DRAIN
    posts: Posts = field(init=False)
    """What is served."""
    _answering: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        answers = {
            MUTATE: self.mutate,
            VALIDATE: self.validate,
            ACCESS: self.access,
            ACCESS_VALIDATE: self.access_validate,
        }
        self.posts = Posts(answers, largest=LARGEST_BODY, refused=self._refused)

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
            self.posts.closing = True
            await self.clock.sleep(self.drain)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Listen]:
        """Serve while the block runs; yields where, with the port that was really taken."""
        async with serving.serve(self.posts, self.listen) as taken:
            log.info("serving admission reviews", url=taken.url)
            yield taken

    async def mutate(self, body: bytes) -> Reply:
        return self._review(MUTATE, body, self.mutator.mutate)

    async def validate(self, body: bytes) -> Reply:
        return self._review(VALIDATE, body, _refusals_of(self.mutator))

    async def access(self, body: bytes) -> Reply:
        return self._review(ACCESS, body, self.guard.mutate)

    async def access_validate(self, body: bytes) -> Reply:
        return self._review(ACCESS_VALIDATE, body, _refusals_of(self.guard))

    def _refused(self, path: str, status: int) -> None:
        known = path[1:] if path in PATHS else "none"
        self.gauge.refused(known, f"refused with {status}")

    def _review(self, path: str, body: bytes, decide: Callable[[AdmissionRequest], Verdict]) -> Reply:
        began, webhook = self.clock.monotonic(), path[1:]
        asked = review.read(body)
        if isinstance(asked, Unreadable):
            log.warning("a review cannot be read", webhook=webhook, why=asked.sentence)
            self.gauge.answered(webhook, "unreadable", self.clock.monotonic() - began)
            return Reply(asked.status, asked.body, JSON if asked.is_review else TEXT)
        try:
            verdict = decide(asked) if asked.creates_a_pod else Verdict()
            reply = Reply(200, review.answer(asked.uid, verdict), JSON)
        except Exception as bug:  # a failed call: the API server goes by the failure policy
            log.exception("a review failed", webhook=webhook, uid=asked.uid, error=repr(bug))
            self.gauge.answered(webhook, "crashed", self.clock.monotonic() - began)
            return Reply(500, b"the webhook failed on this review; its log says why\n")
        self.gauge.answered(webhook, _outcome(verdict), self.clock.monotonic() - began)
        if not asked.dry_run:
            self._tell(asked, verdict)
        return reply

    def _tell(self, asked: AdmissionRequest, verdict: Verdict) -> None:
        for before, after in verdict.fallbacks:
            self.gauge.rewritten(before, after)
        if verdict.allowed and verdict.events:
            self.notices.expect(asked, verdict.events)


def _refusals_of(decider: Mutator) -> Callable[[AdmissionRequest], Verdict]:
    """A validating webhook cannot change a pod, and its warnings were given already."""

    def decide(asked: AdmissionRequest) -> Verdict:
        verdict = decider.mutate(asked)
        return Verdict() if verdict.allowed else Verdict(allowed=False, sentence=verdict.sentence)

    return decide


def _outcome(verdict: Verdict) -> str:
    if not verdict.allowed:
        return "denied"
    return "changed" if verdict.operations else "unchanged"
