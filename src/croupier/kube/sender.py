"""Requests repeated when that is safe, with the patience the API server asks for.

A 429 was refused before it ran, and a request that found no connection never
left: both are always repeated. A 5xx or a cut connection may hide a success,
so only what can run twice without harm is repeated then.
"""

import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import Enum

from croupier.kube import errors
from croupier.kube.backoff import Backoff
from croupier.kube.clock import Clock
from croupier.kube.errors import ApiError, KubeError, ServerError, TooManyRequests, Unreachable
from croupier.kube.transport import Answer, NeverSent, Request, Transport

Observe = Callable[[str, str, int, float], None]
"""Told of every attempt: verb, resource, HTTP status (0: no answer), seconds until answered."""

LONGEST_WAIT = 60.0
"""Seconds; a Retry-After beyond this is cut to it."""


def unobserved(verb: str, resource: str, code: int, seconds: float) -> None:
    """For those who do not count."""


class Repeat(Enum):
    """What may be done again when we do not know whether it was done."""

    HARMLESS = "running it twice is the same as once"
    RISKY = "a second run could do more, or fail on the first one's success"
    NEVER = "the caller wants to hear of everything, even a 429"


@dataclass(frozen=True, slots=True)
class Patience:
    tries: int = 6
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float = 60.0
    """Seconds one attempt may take."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request with what its counting and repeating need."""

    request: Request
    verb: str
    resource: str
    repeat: Repeat


class Sender:
    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        chance: Callable[[], float],
        observe: Observe,
        patience: Patience,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._chance = chance
        self._observe = observe
        self._patience = patience
        self._permit: Callable[[], None] | None = None

    def fenced(self, permit: Callable[[], None]) -> "Sender":
        """The same, but `permit` is asked before every attempt to write; it raises to refuse."""
        fenced = copy.copy(self)
        fenced._permit = permit
        return fenced

    async def send(self, call: Call) -> bytes:
        """The body of the answer, or the last error once patience is at its end."""
        for failures in range(1, self._patience.tries + 1):
            try:
                return await self._once(call)
            except KubeError as error:
                if failures == self._patience.tries or not may_repeat(error, call.repeat):
                    raise
                await self._clock.sleep(self._wait(error, failures))
        raise AssertionError("unreachable: the last try returns or raises")

    @contextlib.asynccontextmanager
    async def stream(self, call: Call, *, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """An answer in pieces, never repeated here: who reads it knows where to go on."""
        began, code = self._clock.monotonic(), 0
        try:
            async with self._transport.stream(call.request, silence=silence) as pieces:
                code = 200
                self._seen(call, code, began)
                yield pieces
        except KubeError as error:
            if code == 0:
                self._seen(call, error.status if isinstance(error, ApiError) else 0, began)
            raise

    async def _once(self, call: Call) -> bytes:
        if self._permit is not None and call.request.method != "GET":
            self._permit()
        began, code = self._clock.monotonic(), 0
        try:
            answer = await self._transport.send(call.request, timeout=self._patience.timeout)
            code = answer.status
        finally:
            self._seen(call, code, began)
        return _body(answer, call.request)

    def _seen(self, call: Call, code: int, began: float) -> None:
        self._observe(call.verb, call.resource, code, self._clock.monotonic() - began)

    def _wait(self, error: KubeError, failures: int) -> float:
        chance = self._chance()
        asked = error.retry_after if isinstance(error, ApiError) else None
        if asked is None:
            return self._patience.backoff.delay(failures, chance)
        return min(asked, LONGEST_WAIT) + self._patience.backoff.first * chance


def may_repeat(error: KubeError, repeat: Repeat) -> bool:
    if repeat is Repeat.NEVER:
        return False
    if isinstance(error, TooManyRequests | NeverSent):
        return True
    return repeat is Repeat.HARMLESS and isinstance(error, ServerError | Unreachable)


def _body(answer: Answer, request: Request) -> bytes:
    if answer.status < 300:
        return answer.body
    raise errors.from_answer(answer.status, answer.body, retry_after=answer.retry_after, request=str(request))
