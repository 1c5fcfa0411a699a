"""Paces responses so that kube-scheduler reuses its connections.

The HTTP client of kube-scheduler keeps two idle connections and closes all others. Binds that share a write
end at the same time: their connections would become idle at once, and the next binds would open new ones,
which costs more than the request itself. With paced responses the next request reuses the connection. The pod
is already bound at that time, so the delay is harmless.
"""

from typing import Final

from croupier.kube.client.clock import Clock

GAP: Final = 0.006
"""Seconds between two responses; allows more than a hundred binds per second."""
MAX_DELAY: Final = 0.25
"""Maximum delay of a response in seconds."""


class ResponsePacer:
    def __init__(self, clock: Clock, *, gap: float = GAP, longest: float = MAX_DELAY) -> None:
        self._clock = clock
        self._gap = gap
        self._longest = longest
        self._free = float("-inf")
        """When the next response may be sent."""

    async def wait_turn(self) -> None:
        now = self._clock.monotonic()
        turn = max(now, self._free)
        if turn - now > self._longest:
            return
        self._free = turn + self._gap
        if turn > now:
            await self._clock.sleep(turn - now)
