"""The outcomes of a reconcile and their consequences for its key.

A reconcile ends in one of three ways: done, requeue after a delay, or an exception,
which is retried with backoff. A `TerminalError` is not retried, because it cannot
succeed until the object changes. Only this module makes the decision; the
controller executes it.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from croupier.kube.client.errors import ApiError, Conflict, KubeError

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """The reconcile succeeded; with `requeue_after`, reconcile again after that many seconds."""

    requeue_after: float | None = None

    def __post_init__(self) -> None:
        if self.requeue_after is not None and self.requeue_after < 0:
            raise ValueError(f"requeue_after must not be negative, but is {self.requeue_after}")


DONE = Result()

Reconcile = Callable[[K], Awaitable[Result]]
"""Moves one object towards its desired state. Gets a key, never an event; idempotent."""


class TerminalError(Exception):
    """A retry cannot help; the key is not reconciled again until one of its objects changes."""


class ReconcileTimeout(KubeError):
    """A reconcile exceeded its timeout."""


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing to do until an object changes."""

    name = "done"


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Reconcile again after `seconds`, even without a change."""

    seconds: float
    name = "again"


@dataclass(frozen=True, slots=True)
class RetryWithBackoff:
    """The reconcile failed; back off for at least `no_sooner` seconds. Not `loud`: an expected conflict."""

    error: Exception
    no_sooner: float = 0.0
    loud: bool = True
    name = "error"


@dataclass(frozen=True, slots=True)
class NoRetry:
    """The reconcile failed and is not retried until one of its objects changes."""

    error: TerminalError
    name = "terminal"


ReconcileOutcome = Done | RequeueAfter | RetryWithBackoff | NoRetry


def classify(ending: Result | Exception) -> ReconcileOutcome:
    if isinstance(ending, Result):
        return Done() if ending.requeue_after is None else RequeueAfter(ending.requeue_after)
    match ending:
        case TerminalError():
            return NoRetry(ending)
        case Conflict():
            return RetryWithBackoff(ending, loud=False)  # another writer was faster, which is normal
        case ApiError(retry_after=float(seconds)):
            return RetryWithBackoff(ending, no_sooner=seconds)
        case Exception():
            return RetryWithBackoff(ending)
        case _:
            return RetryWithBackoff(TypeError(f"a reconcile must return DONE or a Result, not {ending!r}"))
