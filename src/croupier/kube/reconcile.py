"""How a reconcile may end, and what each ending means for its key.

There are three endings: done, again after some time, or an exception, which is
retried with growing delays. One kind of exception is never retried: what it
complains about cannot get better until somebody changes the object. This is
the only place that knows; the controller carries the verdict out.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from croupier.kube.errors import ApiError, Conflict, KubeError

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """The reconcile did what it could; with `again_after`, look again after so many seconds."""

    again_after: float | None = None

    def __post_init__(self) -> None:
        if self.again_after is not None and self.again_after < 0:
            raise ValueError(f"again_after counts seconds from now, so it cannot be {self.again_after}")


DONE = Result()

Reconcile = Callable[[K], Awaitable[Result]]
"""Brings one object closer to what it should be. Gets a key, never an event; safe to repeat."""


class Terminal(Exception):
    """Trying again cannot help; the key rests until one of its objects changes."""


class TookTooLong(KubeError):
    """A reconcile was cut off at its time limit."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing to do until something changes."""

    name = "done"


@dataclass(frozen=True, slots=True)
class Later:
    """Look again after `seconds`, even if nothing changes."""

    seconds: float
    name = "again"


@dataclass(frozen=True, slots=True)
class Retry:
    """It failed; back off, for at least `no_sooner` seconds. `loud` failures are worth a person's time."""

    error: Exception
    no_sooner: float = 0.0
    loud: bool = True
    name = "error"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It failed for good, until one of its objects changes."""

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
            return Retry(ending, loud=False)  # somebody else was faster: everyday life of compare-and-swap
        case ApiError(retry_after=float(seconds)):
            return Retry(ending, no_sooner=seconds)
        case Exception():
            return Retry(ending)
        case _:
            return Retry(TypeError(f"a reconcile ends with DONE or a Result, not {ending!r}"))
