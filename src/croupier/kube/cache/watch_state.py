"""The state machine of a list-and-watch loop. Pure: outcome in, next step out.

A version that is too old is never retried but listed again, and so is a kind that
was not found. Delays grow with jitter, also after a watch without events, because a
proxy that closes every watch immediately would otherwise be flooded. Any received
event resets the delay.
"""

from dataclasses import dataclass, field

from croupier.kube.client.backoff import Backoff
from croupier.kube.client.errors import ApiError, Gone, KubeError, NotFound


@dataclass(frozen=True, slots=True)
class WatchPosition:
    """`version` is the start of the next watch; None means list first."""

    version: str | None = None
    failures: int = 0
    """Consecutive failures without any event in between."""


@dataclass(frozen=True, slots=True)
class Listed:
    version: str


@dataclass(frozen=True, slots=True)
class WatchProgress:
    """The watch received events or a bookmark; `version` is empty if they had none."""

    version: str


@dataclass(frozen=True, slots=True)
class WatchClosed:
    """The API server closed the watch normally."""

    alive: bool
    """Whether the watch received any event."""


@dataclass(frozen=True, slots=True)
class WatchFailed:
    error: KubeError


WatchOutcome = Listed | WatchProgress | WatchClosed | WatchFailed


@dataclass(frozen=True, slots=True)
class ReflectorOptions:
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.5, most=30.0))
    watch_seconds: int = 300
    """A watch lasts between one and two times this long, so that watches do not end simultaneously."""
    idle_timeout: float = 90.0
    optional: bool = False
    """Treat a kind that is not installed as one without objects, until it is installed."""

    def seconds(self, chance: float) -> int:
        return int(self.watch_seconds * (1 + chance))


def after(position: WatchPosition, what: WatchOutcome) -> WatchPosition:
    match what:
        case Listed(version):
            # The failures stay: if lists succeed but watches always fail, the delay must still grow.
            return WatchPosition(version, position.failures)
        case WatchProgress(version):
            return WatchPosition(version or position.version)
        case WatchClosed(alive=True):
            return WatchPosition(position.version)
        case WatchClosed():
            return WatchPosition(position.version, position.failures + 1)
        case WatchFailed(Gone() | NotFound()):
            return WatchPosition(None, position.failures + 1)
        case WatchFailed():
            return WatchPosition(position.version, position.failures + 1)


def delay(position: WatchPosition, what: WatchOutcome, rules: ReflectorOptions, chance: float) -> float:
    """Seconds until the next list or watch."""
    if position.failures == 0 or isinstance(what, Listed | WatchProgress):
        return 0.0
    delay = rules.backoff.delay(position.failures, chance)
    requested = (
        what.error.retry_after if isinstance(what, WatchFailed) and isinstance(what.error, ApiError) else None
    )
    return max(delay, requested or 0.0)
