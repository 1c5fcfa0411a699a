"""The HTTPS server of the webhooks: six POST endpoints.

`/annotation` removes the fallback annotation that a pod brings. `/mutate` mutates a pod. `/validate` checks
the final pod and refuses what `/mutate` would refuse, because a later webhook could have added an invalid
annotation. `/access` and `/access/validate` do the same for pods that request a pool. `/reservation` checks
Reservations. The API server waits for the answer, so the handlers do no I/O.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog
from prometheus_client import CollectorRegistry

from croupier.admission import review
from croupier.admission.metrics import AdmissionMetrics
from croupier.admission.mutate import FallbackAnnotationRemover
from croupier.admission.review import AdmissionRequest, AdmissionVerdict, UnreadableReview
from croupier.core.fallbacks.fallback import PodEvent
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.serving import http_server
from croupier.kube.serving.http_server import ListenOptions
from croupier.kube.serving.post_app import JSON, TEXT, PostApp, Reply

MAX_BODY: Final = 7 * 1024 * 1024
"""Bytes: the API server accepts objects up to 3 MiB, and a review may contain two of them."""
MUTATE: Final = "/mutate"
VALIDATE: Final = "/validate"
ACCESS: Final = "/access"
ACCESS_VALIDATE: Final = "/access/validate"
RESERVATION: Final = "/reservation"
ANNOTATION: Final = "/annotation"
PATHS: Final = (ANNOTATION, MUTATE, VALIDATE, ACCESS, ACCESS_VALIDATE, RESERVATION)
DRAIN: Final = 5.0
"""Seconds to keep answering after readiness is lost, because requests may still arrive."""

log = structlog.get_logger(__name__)


class AdmissionDecider(Protocol):
    """Decides about a pod from caches only, so it is not async."""

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict: ...


class _DenyAll:
    """The default without pool access control: refuses every pod that requests a pool."""

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        return AdmissionVerdict(
            allowed=False,
            sentence=f"pool access control is not enabled on this webhook ({request.operation})",
        )


class _AllowAll:
    """The default without a check of Reservations."""

    def mutate(self, _request: AdmissionRequest) -> AdmissionVerdict:
        return AdmissionVerdict()


@dataclass(slots=True)
class WebhookServer:
    """`drain` is how long it keeps answering after a stop request."""

    mutator: AdmissionDecider
    listen: ListenOptions
    guard: AdmissionDecider = field(default_factory=_DenyAll)
    """Decides about pods that request a pool."""
    reservations: AdmissionDecider = field(default_factory=_AllowAll)
    """Decides about Reservations."""
    metrics: AdmissionMetrics = field(default_factory=lambda: AdmissionMetrics(CollectorRegistry()))
    on_events: Callable[[AdmissionRequest, tuple[PodEvent, ...]], None] = lambda request, events: None
    """Gets the Events of an admitted pod, to be recorded once the pod exists."""
    clock: Clock = field(default_factory=SystemClock)
    drain: float = DRAIN
    posts: PostApp = field(init=False)
    _answering: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        answers = {
            ANNOTATION: self.annotation,
            MUTATE: self.mutate,
            VALIDATE: self.validate,
            ACCESS: self.access,
            ACCESS_VALIDATE: self.access_validate,
            RESERVATION: self.reservation,
        }
        self.posts = PostApp(answers, max_body=MAX_BODY, refused=self._refused)

    def not_ready(self) -> str | None:
        """For a readiness check."""
        return None if self._answering else "not answering yet"

    async def run(self, stop: asyncio.Event, *, listening: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`; then drain: ask clients to close connections and finish open requests.

        `listening` is called when the server accepts requests.
        """
        async with self.serving():
            self._answering = True
            listening()
            await stop.wait()
            self.posts.closing = True
            await self.clock.sleep(self.drain)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[ListenOptions]:
        """Serve while the block runs; yields the address with the actual port."""
        async with http_server.serve(self.posts, self.listen) as taken:
            log.info(f"the webhook serves admission reviews at {taken.url}", url=taken.url)
            yield taken

    async def annotation(self, body: bytes) -> Reply:
        return self._review(ANNOTATION, body, FallbackAnnotationRemover().mutate)

    async def mutate(self, body: bytes) -> Reply:
        return self._review(MUTATE, body, self.mutator.mutate)

    async def validate(self, body: bytes) -> Reply:
        return self._review(VALIDATE, body, _refusals_of(self.mutator))

    async def access(self, body: bytes) -> Reply:
        return self._review(ACCESS, body, self.guard.mutate)

    async def access_validate(self, body: bytes) -> Reply:
        return self._review(ACCESS_VALIDATE, body, _refusals_of(self.guard))

    async def reservation(self, body: bytes) -> Reply:
        return self._review(RESERVATION, body, _refusals_of(self.reservations), _writes_a_reservation)

    def _refused(self, path: str, status: int) -> None:
        known = path[1:] if path in PATHS else "none"
        self.metrics.refused(known, f"refused with {status}")

    def _review(
        self,
        path: str,
        body: bytes,
        decide: Callable[[AdmissionRequest], AdmissionVerdict],
        concerned: Callable[[AdmissionRequest], bool] = lambda request: request.creates_a_pod,
    ) -> Reply:
        began, webhook = self.clock.monotonic(), path[1:]
        asked = review.read(body)
        if isinstance(asked, UnreadableReview):
            log.warning(
                f"the webhook {webhook} received an invalid AdmissionReview",
                webhook=webhook,
                reason=asked.sentence,
            )
            self.metrics.answered(webhook, "unreadable", self.clock.monotonic() - began)
            return Reply(asked.status, asked.body, JSON if asked.is_review else TEXT)
        try:
            verdict = decide(asked) if concerned(asked) else AdmissionVerdict()
            reply = Reply(200, review.answer(asked.uid, verdict), JSON)
        except Exception as bug:  # a failed call: the API server applies the failure policy
            log.exception(
                f"the webhook {webhook} failed in a review", webhook=webhook, uid=asked.uid, error=repr(bug)
            )
            self.metrics.answered(webhook, "crashed", self.clock.monotonic() - began)
            return Reply(500, b"internal error of the webhook; see its log\n")
        self.metrics.answered(webhook, _outcome(verdict), self.clock.monotonic() - began)
        if not asked.dry_run:
            self._tell(asked, verdict)
        return reply

    def _tell(self, asked: AdmissionRequest, verdict: AdmissionVerdict) -> None:
        for before, after in verdict.fallbacks:
            self.metrics.rewritten(before, after)
        if verdict.allowed and verdict.events:
            self.on_events(asked, verdict.events)


def _writes_a_reservation(asked: AdmissionRequest) -> bool:
    return asked.writes_a_reservation


def _refusals_of(decider: AdmissionDecider) -> Callable[[AdmissionRequest], AdmissionVerdict]:
    """A validating webhook cannot change a pod, and its warnings were sent by the mutating one."""

    def decide(asked: AdmissionRequest) -> AdmissionVerdict:
        verdict = decider.mutate(asked)
        return (
            AdmissionVerdict()
            if verdict.allowed
            else AdmissionVerdict(allowed=False, sentence=verdict.sentence)
        )

    return decide


def _outcome(verdict: AdmissionVerdict) -> str:
    if not verdict.allowed:
        return "denied"
    return "changed" if verdict.operations else "unchanged"
