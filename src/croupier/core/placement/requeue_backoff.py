"""Backoff for requeueing unschedulable pods when capacity becomes free.

A requeue costs a write and a scheduling attempt, which may fail again. So each failed attempt doubles the
backoff of the pod, and only a limited number of pods is requeued at a time, by priority. Namespaces take
turns among pods of the same priority, so that the many pods of one tenant do not delay those of another.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from croupier.core.pods.effective_requests import Amounts
from croupier.core.pods.request_parser import EXTENDER_RESOURCES
from croupier.core.quantity import ZERO

DEBOUNCE: Final = 1.0
"""Seconds to wait for the scheduler's own retry."""
INITIAL_BACKOFF: Final = 5.0
MAX_BACKOFF: Final = 300.0
"""Seconds between two requeues of one pod: doubled after each failed attempt."""
MAX_WAITING: Final = 10_000
MAX_REQUEUED_AT_ONCE: Final = 16
"""Pods requeued at a time; free capacity is seldom enough for more, and each requeue costs a write."""


class WaitingPod(Protocol):
    @property
    def uid(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def priority(self) -> int: ...


W = TypeVar("W", bound=WaitingPod)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[W]):
    pod: W
    requeues: int = 0
    not_before: float = 0.0


class RequeueBackoff(Generic[W]):
    """Refused pods that are not placed yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Entry[W]] = {}  # by UID, in order of arrival
        self._of_namespace: dict[str, dict[str, None]] = {}  # the UIDs of each namespace, in the same order

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, pod: W) -> None:
        known = self._waiting.get(pod.uid)
        if known is None and len(self._waiting) >= MAX_WAITING:
            largest = max(self._of_namespace.values(), key=len)
            self.remove(next(iter(largest)))
        calls, not_before = (known.requeues, known.not_before) if known else (0, 0.0)
        self._waiting[pod.uid] = _Entry(pod, calls, not_before)
        self._of_namespace.setdefault(pod.namespace, {})[pod.uid] = None

    def remove(self, uid: str) -> None:
        if (entry := self._waiting.pop(uid, None)) is None:
            return
        uids = self._of_namespace[entry.pod.namespace]
        del uids[uid]
        if not uids:
            del self._of_namespace[entry.pod.namespace]

    def due(self, fits: Callable[[W], bool], now: float) -> list[W]:
        """The pods to requeue now, by priority; each of them starts its next backoff."""
        able = (entry for entry in self._in_turns(now) if fits(entry.pod))
        due = list(islice(able, MAX_REQUEUED_AT_ONCE))
        for entry in due:
            wait = min(MAX_BACKOFF, INITIAL_BACKOFF * 2**entry.requeues)
            self._waiting[entry.pod.uid] = _Entry(entry.pod, entry.requeues + 1, now + wait)
        return [entry.pod for entry in due]

    def _in_turns(self, now: float) -> Iterator[_Entry[W]]:
        """The pods whose backoff is over: by priority, then one of each namespace after the other."""
        turns: Counter[tuple[int, str]] = Counter()
        ordered: list[tuple[int, int, _Entry[W]]] = []
        for entry in self._waiting.values():
            if entry.not_before <= now:
                rank = (-entry.pod.priority, entry.pod.namespace)
                ordered.append((rank[0], turns[rank], entry))
                turns[rank] += 1
        return (entry for _, _, entry in sorted(ordered, key=lambda item: item[:2]))


def gained_resources(before: Amounts | None, after: Amounts) -> bool:
    """Whether a node is new or has more of any resource than before."""
    return before is None or any(amount > before.get(name, ZERO) for name, amount in after.items())


def fits_allocatable(requests: Amounts, allocatable: Amounts) -> bool:
    """Whether the allocatable resources of a node suffice, used or not, as kube-scheduler counts them."""
    counted = {name: amount for name, amount in requests.items() if name not in EXTENDER_RESOURCES}
    return all(allocatable.get(name, ZERO) >= amount for name, amount in counted.items())
