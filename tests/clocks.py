"""Clocks that a test turns."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from croupier.kube.client.clock import Clock, SystemClock


@dataclass
class OffsetClock:
    """Another clock plus an offset. Sleeps take their real time."""

    of: Clock = field(default_factory=SystemClock)
    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return self.of.now() + self.ahead

    def monotonic(self) -> float:
        return self.of.monotonic() + self.ahead.total_seconds()

    async def sleep(self, seconds: float) -> None:
        await self.of.sleep(seconds)
