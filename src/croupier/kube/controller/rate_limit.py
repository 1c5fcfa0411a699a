"""A token bucket rate limiter. Pure: time is an argument.

`delay` always grants a token and returns how long to wait for it, for work that
must happen eventually (retries). `allows` grants or refuses, for work that may be
dropped (Events).
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`burst` tokens at once, then `per_second` tokens a second."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if self.per_second <= 0 or self.burst < 1:
            raise ValueError(f"a rate needs more than 0 a second and a burst of at least 1, not {self}")


@dataclass(slots=True)
class TokenBucket:
    rate: RateLimit
    _tokens: float = field(init=False)
    _at: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        self._tokens = float(self.rate.burst)

    def delay(self, now: float) -> float:
        """Take a token, on credit if necessary; return the seconds until it is available."""
        self._refill(now)
        self._tokens -= 1
        return max(0.0, -self._tokens / self.rate.per_second)

    def allows(self, now: float) -> bool:
        """Take a token if one is available."""
        self._refill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def full(self, now: float) -> bool:
        """The bucket equals a new one, so a holder of many buckets may discard it."""
        self._refill(now)
        return self._tokens >= self.rate.burst

    def _refill(self, now: float) -> None:
        if now > self._at:
            grown = (now - self._at) * self.rate.per_second
            self._tokens = min(float(self.rate.burst), self._tokens + grown)
            self._at = now


@dataclass(slots=True)
class TokenBuckets(Generic[K]):
    """One bucket per key; at most `most` are kept, and the least recently used one is discarded first."""

    most: int
    _buckets: OrderedDict[K, TokenBucket] = field(init=False, default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, key: K, rate: RateLimit) -> TokenBucket:
        bucket = self._buckets.setdefault(key, TokenBucket(rate))
        self._buckets.move_to_end(key)
        while len(self._buckets) > self.most:
            self._buckets.popitem(last=False)
        return bucket
