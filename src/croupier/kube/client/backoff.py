"""Exponential backoff with jitter and an upper bound. Pure.

Without jitter, all clients that lost the same API server would reconnect in the
same millisecond.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    first: float = 0.2
    factor: float = 2.0
    most: float = 30.0
    jitter: float = 0.5
    """The random part of a delay: 0.5 gives delays of half to full length."""

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after the n-th consecutive failure (from 1); `chance` is in [0, 1)."""
        steps = min(max(failures - 1, 0), 64)
        whole = min(self.first * self.factor**steps, self.most)
        return whole * (1 - self.jitter + self.jitter * chance)
