"""Clocks are injected, so that tests control time.

Durations are measured with `monotonic`, which cannot be set back; `now` is only
for timestamps that are written into objects or compared with them. For these, use
the clock of the client, which has the time of the API server (server_clock.py).
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The current time in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
