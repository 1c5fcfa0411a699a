"""Lets answers out one at a time, so that kube-scheduler keeps its connections.

Its HTTP client keeps two idle connections and closes every further one. Binds that share a write end
together: their connections would all fall idle at once, and the next binds open new ones, which costs
both sides more than the question itself. An answer that leaves a little later finds the next question
waiting for its connection. The pod is bound by then, so nobody loses anything.
"""

from typing import Final

from croupier.kube.clock import Clock

GAP: Final = 0.006
"""Seconds between two answers: more than a hundred a second, as binds come."""
LONGEST: Final = 0.25
"""Seconds an answer is kept back at most."""


class Turnstile:
    def __init__(self, clock: Clock, *, gap: float = GAP, longest: float = LONGEST) -> None:
        self._clock = clock
        self._gap = gap
        self._longest = longest
        self._free = float("-inf")
        """When the next may leave."""

    async def leave(self) -> None:
        now = self._clock.monotonic()
        turn = max(now, self._free)
        if turn - now > self._longest:
            return
        self._free = turn + self._gap
        if turn > now:
            await self._clock.sleep(turn - now)
