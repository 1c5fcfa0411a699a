"""A token bucket: so many at once, so many a second after that. Pure: time is an argument.

It answers in two ways. `delay` always grants and says how long to wait, for
work that must happen in the end (retries). `allows` grants or refuses, for
what may be left out (Events).
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rate:
    """`burst` at once, then `per_second`."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if self.per_second <= 0 or self.burst < 1:
            raise ValueError(f"a rate needs more than 0 a second and a burst of at least 1, not {self}")


@dataclass(slots=True)
class Bucket:
    rate: Rate
    _tokens: float = field(init=False)
    _at: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        self._tokens = float(self.rate.burst)

    def delay(self, now: float) -> float:
        """Take a token, on credit if need be: seconds until it is really there."""
        self._refill(now)
        self._tokens -= 1
        return max(0.0, -self._tokens / self.rate.per_second)

    def allows(self, now: float) -> bool:
        """Take a token if there is one."""
        self._refill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def full(self, now: float) -> bool:
        """As if it had never been used: whoever keeps many buckets may forget this one."""
        self._refill(now)
        return self._tokens >= self.rate.burst

    def _refill(self, now: float) -> None:
        if now > self._at:
            grown = (now - self._at) * self.rate.per_second
            self._tokens = min(float(self.rate.burst), self._tokens + grown)
            self._at = now
