"""Backoff for requeueing unschedulable pods when capacity becomes free.

A requeue costs a write and a scheduling attempt, which may fail again. So each failed attempt doubles the
backoff of the pod, and only a limited number of pods is requeued at a time, by priority.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from croupier.core.pods.effective import Amounts
from croupier.core.pods.request import MARK
from croupier.core.quantity import ZERO

PAUSE: Final = 1.0
"""Seconds to wait for the scheduler's own retry."""
FIRST: Final = 5.0
LAST: Final = 300.0
"""Seconds between two requeues of one pod: doubled after each failed attempt."""
MOST_WAITING: Final = 10_000
MOST_AT_ONCE: Final = 16
"""Pods requeued at a time; free capacity is seldom enough for more, and each requeue costs a write."""


class Guest(Protocol):
    @property
    def uid(self) -> str: ...

    @property
    def priority(self) -> int: ...


G = TypeVar("G", bound=Guest)


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[G]):
    guest: G
    calls: int = 0
    not_before: float = 0.0


class WaitingRoom(Generic[G]):
    """Refused pods that are not placed yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting[G]] = {}  # by UID, in order of arrival

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, guest: G) -> None:
        known = self._waiting.get(guest.uid)
        if known is None and len(self._waiting) >= MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        calls, not_before = (known.calls, known.not_before) if known else (0, 0.0)
        self._waiting[guest.uid] = _Waiting(guest, calls, not_before)

    def leave(self, uid: str) -> None:
        self._waiting.pop(uid, None)

    def call(self, fits: Callable[[G], bool], now: float) -> list[G]:
        """The pods to requeue now, by priority; each of them starts its next backoff."""
        by_priority = sorted(self._waiting.values(), key=lambda entry: -entry.guest.priority)
        due = list(islice(self._able(by_priority, fits, now), MOST_AT_ONCE))
        for entry in due:
            wait = min(LAST, FIRST * 2**entry.calls)
            self._waiting[entry.guest.uid] = _Waiting(entry.guest, entry.calls + 1, now + wait)
        return [entry.guest for entry in due]

    def _able(
        self, waiting: list[_Waiting[G]], fits: Callable[[G], bool], now: float
    ) -> Iterator[_Waiting[G]]:
        return (entry for entry in waiting if entry.not_before <= now and fits(entry.guest))


def opens(before: Amounts | None, after: Amounts) -> bool:
    """Whether a node is new or has more of any resource than before."""
    return before is None or any(amount > before.get(name, ZERO) for name, amount in after.items())


def could(requests: Amounts, allocatable: Amounts) -> bool:
    """Whether the allocatable resources of a node suffice, used or not; `gpu.mps.io/ledger` is ignored."""
    return all(allocatable.get(name, ZERO) >= amount for name, amount in requests.items() if name != MARK)
