"""The pure half of the work queue: which key is processed next.

A key is absent, *waiting* for its due time, *ready*, or *busy*. A busy key may
also be waiting, or be marked to run *again*. At most one request per key is
pending, and the earliest wins: a reconciler reads the whole state of its object,
so one reconcile serves every request made before it.

A busy key is never handed out twice. If it is added while a worker processes it,
it becomes ready once when the worker is done.

Ready keys are served fairly between groups, which are namespaces unless a controller
decides otherwise: groups take turns, one key each, and the keys of a group leave in
FIFO order. So a key waits for at most one key of each other group, however many keys
another tenant has created, and a key that is added constantly cannot starve the others.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from croupier.kube.client.backoff import Backoff
from croupier.kube.client.identity import Key
from croupier.kube.controller.rate_limit import RateLimit, TokenBuckets

K = TypeVar("K", bound=Hashable)

RETRY_BACKOFF = Backoff(first=0.05, most=300.0, jitter=0.25)
RETRY_RATE = RateLimit(per_second=20, burst=200)
MAX_RETRY_BUCKETS = 10_000
"""Groups whose retries are counted; the cluster limits of Kubernetes allow as many namespaces."""


@dataclass(frozen=True, slots=True)
class QueueItem(Generic[K]):
    """A key to process, and how many seconds it was ready before a worker took it."""

    key: K
    waited: float


def namespace_of(key: Hashable) -> str:
    """The group of a key by default: keys of cluster-scoped objects are one group."""
    return key.namespace if isinstance(key, Key) else ""


@dataclass(slots=True)
class WorkQueueState(Generic[K]):
    """`retries` is the backoff of one key; `retry_rate` bounds the retries of a group."""

    retries: Backoff = RETRY_BACKOFF
    retry_rate: RateLimit = RETRY_RATE
    group: Callable[[K], Hashable] = namespace_of
    closed: bool = field(init=False, default=False)
    _turns: OrderedDict[Hashable, deque[K]] = field(init=False, default_factory=OrderedDict)
    """The ready keys by group, the group whose turn is next first. No group is empty."""
    _since: dict[K, float] = field(init=False, default_factory=dict)
    _due: dict[K, float] = field(init=False, default_factory=dict)
    _alarms: list[tuple[float, int, K]] = field(init=False, default_factory=list)
    _alarm_count: int = field(init=False, default=0)
    _busy: set[K] = field(init=False, default_factory=set)
    _again: dict[K, float] = field(init=False, default_factory=dict)
    _failures: dict[K, int] = field(init=False, default_factory=dict)
    _buckets: TokenBuckets[Hashable] = field(
        init=False, default_factory=lambda: TokenBuckets(MAX_RETRY_BUCKETS)
    )

    def add(self, key: K, now: float) -> bool:
        """Make `key` ready; False if the request is redundant."""
        if self.closed or key in self._since or key in self._again:
            return False
        self._due.pop(key, None)
        if key in self._busy:
            self._again[key] = now
        else:
            self._make_ready(key, now)
        return True

    def add_at(self, key: K, due: float, now: float) -> bool:
        """Make `key` ready at `due`, unless it is already requested for an earlier time."""
        if due <= now:
            return self.add(key, now)
        if self.closed or key in self._since or key in self._again:
            return False
        if due >= self._due.get(key, float("inf")):
            return False
        self._due[key] = due
        self._alarm_count += 1  # equal due times are served in the order of their requests
        heapq.heappush(self._alarms, (due, self._alarm_count, key))
        return True

    def retry(self, key: K, now: float, chance: float, no_sooner: float = 0.0) -> float:
        """Requeue a failed key after its own backoff, within the rate of its group; return the delay."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        paced = self._buckets.of(self.group(key), self.retry_rate).delay(now)
        delay = max(self.retries.delay(failures, chance), paced, no_sooner)
        self.add_at(key, now + delay, now)
        return delay

    def forget(self, key: K) -> None:
        """Reset the failure count of `key` after a success."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    def take(self, now: float) -> QueueItem[K] | None:
        """The next ready key, which stays busy until `done`; None if no key is ready."""
        self._make_due_ready(now)
        if not self._turns:
            return None
        group, keys = self._turns.popitem(last=False)
        key = keys.popleft()
        if keys:
            self._turns[group] = keys  # its next turn is after those of all other groups
        self._busy.add(key)
        return QueueItem(key, waited=max(0.0, now - self._since.pop(key)))

    def done(self, key: K, now: float) -> None:
        """The worker has finished `key`."""
        self._busy.remove(key)
        if key in self._again:
            self._make_ready(key, self._again.pop(key))
        self._make_due_ready(now)

    def close(self) -> None:
        """Accept no more requests and drop waiting keys; ready keys are still handed out."""
        self.closed = True
        self._due.clear()
        self._alarms.clear()

    def clear(self) -> None:
        """Close the queue and drop ready keys too."""
        self.close()
        self._turns.clear()
        self._since.clear()
        self._again.clear()

    @property
    def drained(self) -> bool:
        return self.closed and not self._since and not self._busy

    @property
    def ready(self) -> int:
        """Number of keys that a worker could take now."""
        return len(self._since)

    @property
    def waiting(self) -> int:
        """Number of keys that wait for their due time."""
        return len(self._due)

    @property
    def busy(self) -> int:
        return len(self._busy)

    def next_alarm(self) -> float | None:
        """When the next waiting key is due."""
        self._drop_stale_alarms()
        return self._alarms[0][0] if self._alarms else None

    def _make_ready(self, key: K, since: float) -> None:
        self._since[key] = since
        self._turns.setdefault(self.group(key), deque()).append(key)

    def _make_due_ready(self, now: float) -> None:
        """Make due keys ready, counted from their due time."""
        self._drop_stale_alarms()
        while self._alarms and self._alarms[0][0] <= now:
            due, _, key = heapq.heappop(self._alarms)
            self.add(key, due)
            self._drop_stale_alarms()

    def _drop_stale_alarms(self) -> None:
        """Remove alarms of keys that were requested again for an earlier time."""
        while self._alarms and self._due.get(self._alarms[0][2]) != self._alarms[0][0]:
            heapq.heappop(self._alarms)
