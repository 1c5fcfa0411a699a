"""Retries requests when that is safe, with the delay that the API server requests.

A request that got a 429 or no connection was not executed, so it is always retried.
After a 5xx or a broken connection the request may have been executed, so only
idempotent requests are retried.

The requests of a process that wait for a response are limited, because a slow API
server answers many of them no sooner than a few. The others wait here, in order.
Watches are not counted, and renewals of Leases pass by.
"""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from croupier.kube.client import errors
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.clock import Clock
from croupier.kube.client.concurrency import MAX_CONCURRENT
from croupier.kube.client.errors import ApiError, KubeError, ServerError, TooManyRequests, Unreachable
from croupier.kube.client.transport import ApiRequest, ApiResponse, NeverSent, Transport

RequestObserver = Callable[[str, str, int, float], None]
"""Called for every attempt with verb, resource, HTTP status (0: no response) and duration in seconds."""

MAX_RETRY_AFTER = 60.0
"""Upper bound of a Retry-After in seconds."""


def ignore_attempt(verb: str, resource: str, code: int, seconds: float) -> None:
    """Ignores the attempt."""


class RetrySafety(Enum):
    """Whether a request may be retried if it is unknown whether it was executed."""

    IDEMPOTENT = "idempotent: executing it twice is the same as once"
    NOT_IDEMPOTENT = "a second execution could have another effect, or fail after the first succeeded"
    NEVER = "the caller handles every error itself, even a 429"


@dataclass(frozen=True, slots=True)
class RetryOptions:
    tries: int = 6
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float = 60.0
    """Seconds that one attempt may take."""
    in_flight: int = MAX_CONCURRENT
    """Requests of one client that wait for a response at the same time."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request with its labels for metrics and its retry rule."""

    request: ApiRequest
    verb: str
    resource: str
    repeat: RetrySafety


class RetryingSender:
    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        chance: Callable[[], float],
        observe: RequestObserver,
        retry: RetryOptions,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._chance = chance
        self._observe = observe
        self._retry = retry
        self._slots: contextlib.AbstractAsyncContextManager[object] = asyncio.Semaphore(retry.in_flight)
        self._permit: Callable[[], None] | None = None

    def fenced(self, permit: Callable[[], None]) -> "RetryingSender":
        """A copy that calls `permit` before every attempt to write; it raises to refuse."""
        fenced = copy.copy(self)
        fenced._permit = permit
        return fenced

    def prioritized(self, timeout: float) -> "RetryingSender":
        """A copy that never waits for other requests, on connections of its own."""
        prioritized = copy.copy(self)
        prioritized._transport = self._transport.separate()
        prioritized._slots = contextlib.nullcontext()
        prioritized._retry = replace(self._retry, timeout=timeout)
        return prioritized

    async def send(self, call: ApiCall) -> bytes:
        """The response body; raises the last error once all attempts have failed."""
        for failures in range(1, self._retry.tries + 1):
            try:
                return await self._once(call)
            except KubeError as error:
                if failures == self._retry.tries or not may_retry(error, call.repeat):
                    raise
                await self._clock.sleep(self._wait(error, failures))
        raise AssertionError("unreachable: the last try returns or raises")

    @contextlib.asynccontextmanager
    async def stream(self, call: ApiCall, *, idle_timeout: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """A response in chunks. Not retried here: the reader knows where to resume."""
        began, code = self._clock.monotonic(), 0
        try:
            async with self._transport.stream(call.request, idle_timeout=idle_timeout) as chunks:
                code = 200
                self._observe_attempt(call, code, began)
                yield chunks
        except KubeError as error:
            if code == 0:
                self._observe_attempt(call, error.status if isinstance(error, ApiError) else 0, began)
            raise

    async def send_once(self, call: ApiCall, *, timeout: float) -> bytes:  # noqa: ASYNC109  # aiohttp's own deadline
        """The response body of a single attempt that takes at most `timeout` seconds."""
        return await self._once(call, timeout)

    async def _once(self, call: ApiCall, seconds: float | None = None) -> bytes:
        async with self._slots:
            if self._permit is not None and call.request.method != "GET":
                self._permit()  # after the wait for a slot, during which the lease may expire
            began, code = self._clock.monotonic(), 0
            try:
                response = await self._transport.send(call.request, timeout=seconds or self._retry.timeout)
                code = response.status
            finally:
                self._observe_attempt(call, code, began)
        return _body(response, call.request)

    def _observe_attempt(self, call: ApiCall, code: int, began: float) -> None:
        self._observe(call.verb, call.resource, code, self._clock.monotonic() - began)

    def _wait(self, error: KubeError, failures: int) -> float:
        chance = self._chance()
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        if retry_after is None:
            return self._retry.backoff.delay(failures, chance)
        return min(retry_after, MAX_RETRY_AFTER) + self._retry.backoff.first * chance


def may_retry(error: KubeError, repeat: RetrySafety) -> bool:
    if repeat is RetrySafety.NEVER:
        return False
    if isinstance(error, TooManyRequests | NeverSent):
        return True
    return repeat is RetrySafety.IDEMPOTENT and isinstance(error, ServerError | Unreachable)


def _body(response: ApiResponse, request: ApiRequest) -> bytes:
    if response.status < 300:
        return response.body
    raise errors.from_response(
        response.status, response.body, retry_after=response.retry_after, request=str(request)
    )
