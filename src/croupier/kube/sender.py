"""Retries requests when that is safe, with the delay that the API server requests.

A request that got a 429 or no connection was not executed, so it is always retried.
After a 5xx or a broken connection the request may have been executed, so only
idempotent requests are retried.
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
"""Called for every attempt with verb, resource, HTTP status (0: no response) and duration in seconds."""

LONGEST_WAIT = 60.0
"""Upper bound of a Retry-After in seconds."""


def unobserved(verb: str, resource: str, code: int, seconds: float) -> None:
    """Ignores the attempt."""


class Repeat(Enum):
    """Whether a request may be retried if it is unknown whether it was executed."""

    HARMLESS = "idempotent: executing it twice is the same as once"
    RISKY = "a second execution could have another effect, or fail after the first succeeded"
    NEVER = "the caller handles every error itself, even a 429"


@dataclass(frozen=True, slots=True)
class Patience:
    tries: int = 6
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float = 60.0
    """Seconds that one attempt may take."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its labels for metrics and its retry rule."""

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
        """A copy that calls `permit` before every attempt to write; it raises to refuse."""
        fenced = copy.copy(self)
        fenced._permit = permit
        return fenced

    async def send(self, call: Call) -> bytes:
        """The response body; raises the last error once all attempts have failed."""
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
        """A response in chunks. Not retried here: the reader knows where to resume."""
        began, code = self._clock.monotonic(), 0
        try:
            async with self._transport.stream(call.request, silence=silence) as chunks:
                code = 200
                self._seen(call, code, began)
                yield chunks
        except KubeError as error:
            if code == 0:
                self._seen(call, error.status if isinstance(error, ApiError) else 0, began)
            raise

    async def _once(self, call: Call) -> bytes:
        if self._permit is not None and call.request.method != "GET":
            self._permit()
        began, code = self._clock.monotonic(), 0
        try:
            response = await self._transport.send(call.request, timeout=self._patience.timeout)
            code = response.status
        finally:
            self._seen(call, code, began)
        return _body(response, call.request)

    def _seen(self, call: Call, code: int, began: float) -> None:
        self._observe(call.verb, call.resource, code, self._clock.monotonic() - began)

    def _wait(self, error: KubeError, failures: int) -> float:
        chance = self._chance()
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        if retry_after is None:
            return self._patience.backoff.delay(failures, chance)
        return min(retry_after, LONGEST_WAIT) + self._patience.backoff.first * chance


def may_repeat(error: KubeError, repeat: Repeat) -> bool:
    if repeat is Repeat.NEVER:
        return False
    if isinstance(error, TooManyRequests | NeverSent):
        return True
    return repeat is Repeat.HARMLESS and isinstance(error, ServerError | Unreachable)


def _body(response: Answer, request: Request) -> bytes:
    if response.status < 300:
        return response.body
    raise errors.from_answer(
        response.status, response.body, retry_after=response.retry_after, request=str(request)
    )
