"""The outcomes of a reconcile and their consequences for its key.

A reconcile ends in one of three ways: done, requeue after a delay, or an exception,
which is retried with backoff. A `TerminalError` is not retried, because it cannot
succeed until the object changes. Only this module makes the decision; the
controller executes it.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from croupier.kube.errors import ApiError, Conflict, KubeError

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """The reconcile succeeded; with `requeue_after`, reconcile again after that many seconds."""

    again_after: float | None = None

    def __post_init__(self) -> None:
        if self.again_after is not None and self.again_after < 0:
            raise ValueError(f"requeue_after must not be negative, but is {self.again_after}")


DONE = Result()

Reconcile = Callable[[K], Awaitable[Result]]
"""Moves one object towards its desired state. Gets a key, never an event; idempotent."""


class Terminal(Exception):
    """A retry cannot help; the key is not reconciled again until one of its objects changes."""


class TookTooLong(KubeError):
    """A reconcile exceeded its timeout."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing to do until an object changes."""

    name = "done"


@dataclass(frozen=True, slots=True)
class Later:
    """Reconcile again after `seconds`, even without a change."""

    seconds: float
    name = "again"


@dataclass(frozen=True, slots=True)
class Retry:
    """The reconcile failed; back off for at least `no_sooner` seconds. Not `loud`: an expected conflict."""

    error: Exception
    no_sooner: float = 0.0
    loud: bool = True
    name = "error"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The reconcile failed and is not retried until one of its objects changes."""

    error: Terminal
    name = "terminal"


Verdict = Finished | Later | Retry | GiveUp


def judge(ending: Result | Exception) -> Verdict:
    if isinstance(ending, Result):
        return Finished() if ending.again_after is None else Later(ending.again_after)
    match ending:
        case Terminal():
            return GiveUp(ending)
        case Conflict():
            return Retry(ending, loud=False)  # another writer was faster, which is normal
        case ApiError(retry_after=float(seconds)):
            return Retry(ending, no_sooner=seconds)
        case Exception():
            return Retry(ending)
        case _:
            return Retry(TypeError(f"a reconcile must return DONE or a Result, not {ending!r}"))
