"""What a list-and-watch loop does next. Pure: what happened in, next step out.

The rules other operators paid for: a version that is too old means list again
and is never retried, and so does a kind that is gone; waits grow with jitter, also after a watch that brought
nothing (a proxy that closes every watch at once would otherwise be hammered);
any sign of life resets them.
"""

from dataclasses import dataclass, field

from croupier.kube.backoff import Backoff
from croupier.kube.errors import ApiError, Gone, KubeError, NotFound


@dataclass(frozen=True, slots=True)
class Position:
    """`version` is where the next watch begins; None: list first."""

    version: str | None = None
    failures: int = 0
    """In a row, without a sign of life in between."""


@dataclass(frozen=True, slots=True)
class Listed:
    version: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The watch showed events or a bookmark; `version` is empty if it named none."""

    version: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The API server closed the watch in good order."""

    alive: bool
    """Whether anything at all came through it."""


@dataclass(frozen=True, slots=True)
class Broke:
    error: KubeError


Happening = Listed | Progress | Ended | Broke


@dataclass(frozen=True, slots=True)
class Rules:
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.5, most=30.0))
    watch_seconds: int = 300
    """A watch lasts this long to twice this long, so that not all end together."""
    silence: float = 90.0
    optional: bool = False
    """A kind the API server does not know has no objects, until it comes to know it."""

    def seconds(self, chance: float) -> int:
        return int(self.watch_seconds * (1 + chance))


def after(position: Position, what: Happening) -> Position:
    match what:
        case Listed(version):
            # Not a clean slate: a list that works and a watch that never does must still slow down.
            return Position(version, position.failures)
        case Progress(version):
            return Position(version or position.version)
        case Ended(alive=True):
            return Position(position.version)
        case Ended():
            return Position(position.version, position.failures + 1)
        case Broke(Gone() | NotFound()):
            return Position(None, position.failures + 1)
        case Broke():
            return Position(position.version, position.failures + 1)


def wait(position: Position, what: Happening, rules: Rules, chance: float) -> float:
    """Seconds to rest before the next list or watch."""
    if position.failures == 0 or isinstance(what, Listed | Progress):
        return 0.0
    delay = rules.backoff.delay(position.failures, chance)
    asked = what.error.retry_after if isinstance(what, Broke) and isinstance(what.error, ApiError) else None
    return max(delay, asked or 0.0)
