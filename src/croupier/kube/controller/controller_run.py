"""One run of a controller: its queue, its workers, and the handling of reconcile outcomes.

A controller that loses the leadership and regains it starts a new run without any
state of the last.
"""

import asyncio
import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog
from structlog.contextvars import bind_contextvars, unbind_contextvars

from croupier.kube.cache.expectations import Expectations
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.errors import KubeError
from croupier.kube.controller import reconcile
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.rate_limit import RateLimit
from croupier.kube.controller.reconcile import (
    Done,
    NoRetry,
    Reconcile,
    ReconcileOutcome,
    ReconcileTimeout,
    RequeueAfter,
    Result,
    RetryWithBackoff,
)
from croupier.kube.controller.workqueue import WorkQueue
from croupier.kube.controller.workqueue_state import WorkQueueState

K = TypeVar("K", bound=Hashable)

log = structlog.get_logger(__name__)


class LeaderCheck(Protocol):
    """Whether the controller may act now; a `Leadership` if there is leader election."""

    def held(self) -> bool: ...


class _AlwaysLeader:
    def held(self) -> bool:
        return True


ALWAYS_LEADER = _AlwaysLeader()
"""For controllers without leader election."""


@dataclass(frozen=True, slots=True)
class RunOptions(Generic[K]):
    controller: str
    timeout: float
    retries: Backoff
    retry_rate: RateLimit
    group: Callable[[K], Hashable]


class ControllerRun(Generic[K]):
    def __init__(
        self,
        rules: RunOptions[K],
        reconcile: Reconcile[K],
        expectations: Expectations[K],
        *,
        metrics: ControllerMetrics,
        leader_check: LeaderCheck,
    ) -> None:
        self._rules = rules
        self._reconcile = reconcile
        self._expectations = expectations
        self._metrics = metrics
        self._leader_check = leader_check
        self._queue: WorkQueue[K] = WorkQueue(
            WorkQueueState(rules.retries, rules.retry_rate, rules.group), metrics=metrics
        )
        self._not_retried: set[K] = set()
        self._ids = itertools.count(1)
        self._time = asyncio.get_running_loop().time

    def enqueue(self, key: K) -> None:
        """Enqueue `key` because one of its objects changed."""
        self._not_retried.discard(key)
        self._queue.add(key)

    def enqueue_after(self, key: K, seconds: float) -> None:
        """Enqueue `key` after a delay because one of its objects changed."""
        self._not_retried.discard(key)
        self._queue.add_after(key, seconds)

    def resync_key(self, key: K) -> None:
        """Enqueue `key` without a change; keys that failed with a TerminalError are skipped."""
        if key not in self._not_retried:
            self._queue.add(key)

    def close(self) -> None:
        """Let the workers finish the ready keys, then end."""
        self._queue.close()

    async def work(self) -> None:
        """Run one worker as its own task: process keys until the queue is closed and empty."""
        bind_contextvars(controller=self._rules.controller)
        while (key := await self._queue.take()) is not None:
            try:
                await self._process(key)
            finally:
                self._queue.done(key)

    async def _process(self, key: K) -> None:
        if not self._leader_check.held():
            log.warning("the controller lost its Lease and drops the remaining keys")
            self._queue.abandon()
        elif (wait := self._held_back(key)) is not None:
            self._queue.add_after(key, wait)
        else:
            await self._reconcile_once(key)
            if (wait := self._held_back(key)) is not None:
                self._queue.add_after(key, wait)  # in case the cache never shows the write

    def _held_back(self, key: K) -> float | None:
        missed = self._expectations.missed
        wait = self._expectations.holds(key, self._time())
        if self._expectations.missed > missed:
            self._metrics.missed(self._expectations.missed - missed)
        return wait

    async def _reconcile_once(self, key: K) -> None:
        began = self._time()
        outcome = "cancelled"
        self._metrics.started()
        bind_contextvars(key=str(key), reconcile=next(self._ids))
        try:
            verdict = reconcile.classify(await self._result_of(key))
            self._handle_outcome(key, verdict)
            outcome = verdict.name
        finally:
            unbind_contextvars("key", "reconcile")
            self._metrics.ended(outcome, self._time() - began)

    async def _result_of(self, key: K) -> Result | Exception:
        try:
            async with asyncio.timeout(self._rules.timeout) as limit:
                return await self._reconcile(key)
        except TimeoutError as error:
            return (
                ReconcileTimeout(f"timed out after {self._rules.timeout:g} s") if limit.expired() else error
            )
        except asyncio.CancelledError as error:
            if _being_cancelled():
                raise
            return RuntimeError(f"the reconcile cancelled itself: {error}")  # must not end the worker
        except Exception as error:
            return error

    def _handle_outcome(self, key: K, verdict: ReconcileOutcome) -> None:
        match verdict:
            case Done():
                self._queue.forget(key)
            case RequeueAfter(seconds=seconds):
                self._queue.forget(key)
                self._queue.add_after(key, seconds)
            case RetryWithBackoff(error=error, no_sooner=no_sooner, loud=loud):
                delay = self._queue.retry(key, no_sooner)
                _report(key, error, delay=delay, loud=loud)
            case NoRetry(error=error):
                self._queue.forget(key)
                self._not_retried.add(key)
                log.warning(
                    f"reconcile of {key} failed and waits for a change of the object: {error}",
                    error=str(error),
                )


def _report(key: object, error: Exception, *, delay: float, loud: bool) -> None:
    """Log API errors in one line, and all other errors with their traceback."""
    retry_in = round(delay, 3)
    if not loud:
        log.info(f"reconcile of {key} met a conflict and is retried", error=str(error), retry_in=retry_in)
    elif isinstance(error, KubeError):
        log.warning(f"reconcile of {key} failed and is retried: {error}", error=str(error), retry_in=retry_in)
    else:
        log.error(
            f"reconcile of {key} failed and is retried: {error!r}",
            error=repr(error),
            retry_in=retry_in,
            exc_info=error,
        )


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
