"""The time of the API server, measured with the Date header of its responses.

Times in objects are written by the API server and by several processes, and compared by others. If each
process used the clock of its machine, a machine whose clock is wrong would end every hold at once, or none.
So every process that writes or compares times in objects uses the clock of its client.

A response proves two bounds: the API server wrote its Date, which has whole seconds, between the request
and the response. Bounds of several responses are intersected. They are relative to the monotonic clock, so
that a correction of the machine's clock changes nothing. As long as the machine's clock is within the bounds,
it is right; otherwise the nearest bound is used.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from croupier.kube.client.clock import Clock

DATE_RESOLUTION: Final = 1.0
"""Seconds by which a Date may be earlier than the time at which it was written."""
ROUNDING: Final = 0.001
"""Seconds by which sums of times differ because of their floating point numbers, and more."""


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """The smallest and the largest possible difference between the server's time and the monotonic clock."""

    earliest: float
    latest: float

    def narrowed(self, other: "TimeBounds") -> "TimeBounds":
        """Both together. If they contradict each other, a clock has changed, and the other one is newer."""
        earliest, latest = max(self.earliest, other.earliest), min(self.latest, other.latest)
        return TimeBounds(earliest, latest) if earliest <= latest else other

    def corrected(self, local: float, monotonic: float) -> float:
        """The time nearest to `local` that is within the bounds."""
        return min(max(local, monotonic + self.earliest), monotonic + self.latest)


def bounds(date: float, *, sent: float, received: float) -> TimeBounds:
    """What a response proves that was requested and received at these times of the monotonic clock."""
    return TimeBounds(date - received, date + DATE_RESOLUTION - sent)


class ServerClock:
    """A clock whose `now` is corrected to the time of the API server."""

    def __init__(self, local: Clock) -> None:
        self._local = local
        self._bounds: TimeBounds | None = None

    def now(self) -> datetime:
        local = self._local.now()
        if self._bounds is None:
            return local
        corrected = self._bounds.corrected(local.timestamp(), self._local.monotonic())
        within = abs(corrected - local.timestamp()) < ROUNDING
        return local if within else datetime.fromtimestamp(corrected, UTC)

    def monotonic(self) -> float:
        return self._local.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._local.sleep(seconds)

    def observe(self, date: str | None, *, sent: float) -> None:
        """Learn from the Date header of a response that has just arrived; an unreadable one is ignored."""
        try:
            written = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        proven = bounds(written, sent=sent, received=self._local.monotonic())
        self._bounds = proven if self._bounds is None else self._bounds.narrowed(proven)
