"""Pods that were refused and wait: whom to call when something is there for them, and how often.

A call costs a write and a turn of the scheduler, and may lead to nothing: so each that did is followed by a
longer pause, and only some are called at a time, the most important first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from croupier.core.pods.effective import Amounts
from croupier.core.pods.request import MARK
from croupier.core.quantity import ZERO

PAUSE: Final = 1.0
"""Seconds the scheduler has to come by itself."""
FIRST: Final = 5.0
LAST: Final = 300.0
"""Seconds between two calls to one pod: twice as many after each that led to nothing."""
MOST_WAITING: Final = 10_000
MOST_AT_ONCE: Final = 16
"""Pods called at a time; the room is seldom enough for more, and each costs a write."""


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
    """Who was refused and has not been placed."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting[G]] = {}  # by UID, in the order they came

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
        """Those who would fit now, the most important first; they are not called again for a while."""
        by_rank = sorted(self._waiting.values(), key=lambda one: -one.guest.priority)
        called = [one for one, _ in zip(self._able(by_rank, fits, now), range(MOST_AT_ONCE), strict=False)]
        for one in called:
            wait = min(LAST, FIRST * 2**one.calls)
            self._waiting[one.guest.uid] = _Waiting(one.guest, one.calls + 1, now + wait)
        return [one.guest for one in called]

    def _able(
        self, waiting: list[_Waiting[G]], fits: Callable[[G], bool], now: float
    ) -> Iterator[_Waiting[G]]:
        return (one for one in waiting if one.not_before <= now and fits(one.guest))


def opens(before: Amounts | None, after: Amounts) -> bool:
    """Whether a node may take a pod that it could not take before: it is new, or has more of something."""
    return before is None or any(amount > before.get(name, ZERO) for name, amount in after.items())


def could(requests: Amounts, allocatable: Amounts) -> bool:
    """Whether a node has that much at all, whoever uses it now. No node has the mark, which is ours."""
    return all(allocatable.get(name, ZERO) >= amount for name, amount in requests.items() if name != MARK)
