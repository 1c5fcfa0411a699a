"""How long to wait before the next try: a growing, jittered, bounded delay. Pure.

Jitter is not decoration: without it every client that lost the same API server
comes back in the same millisecond.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    first: float = 0.2
    factor: float = 2.0
    most: float = 30.0
    jitter: float = 0.5
    """The part of a delay that chance decides: 0.5 gives delays of half to full length."""

    def delay(self, failures: int, chance: float) -> float:
        """Seconds after the n-th failure in a row (from 1); `chance` is in [0, 1)."""
        steps = min(max(failures - 1, 0), 64)
        whole = min(self.first * self.factor**steps, self.most)
        return whole * (1 - self.jitter + self.jitter * chance)
