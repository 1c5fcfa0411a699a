"""Aggregates Kubernetes Events into series and limits their rate. Pure.

Repetitions of the same Event about the same object form a series: one Event with a
growing count. The number of Events per object is rate limited, because a
controller in a loop could otherwise fill etcd. Memory is bounded: old series are
forgotten, and their next repetition starts a new Event.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from croupier.kube.controller.rate_limit import RateLimit, TokenBuckets

EventType: TypeAlias = Literal["Normal", "Warning"]

NOTE_BYTES = 1024
"""Maximum length of a note; the API server refuses longer ones."""


PER_OBJECT_RATE = RateLimit(per_second=1 / 300, burst=25)


class EventReference(NamedTuple):
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class EventContent(NamedTuple):
    """The content of an Event, without its time and count."""

    regarding: EventReference
    reason: str
    note: str
    action: str
    type: EventType = "Normal"
    related: EventReference | None = None


@dataclass(frozen=True, slots=True)
class EventLimits:
    per_object: RateLimit = PER_OBJECT_RATE
    series_every: float = 10.0
    """Seconds between two updates of one series."""
    series_quiet: float = 360.0
    """Seconds without repetition after which the same content starts a new Event."""
    remembered: int = 4096


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """One Event. `written_count` is the count in the API server: 0 before the Event exists."""

    what: EventContent
    first: datetime
    last: datetime
    last_recorded: float
    """When it was last recorded, monotonic."""
    due: float
    """The earliest time of the next write, monotonic."""
    count: int = 1
    written_count: int = 0
    attempts: int = 0
    name: str = ""

    @property
    def unwritten(self) -> bool:
        return self.count > self.written_count


@dataclass(slots=True)
class EventAggregator:
    limits: EventLimits = field(default_factory=EventLimits)
    _entries: OrderedDict[EventContent, PendingEvent] = field(init=False, default_factory=OrderedDict)
    _unwritten: dict[EventContent, None] = field(init=False, default_factory=dict)
    _buckets: TokenBuckets[EventReference] = field(init=False)

    def __post_init__(self) -> None:
        self._buckets = TokenBuckets(self.limits.remembered)

    def note(self, what: EventContent, now: float, at: datetime) -> str | None:
        """Add an Event; return the reason if it is dropped."""
        old = self._entries.get(what)
        if old is not None and (old.unwritten or now - old.last_recorded < self.limits.series_quiet):
            self._keep(replace(old, count=old.count + 1, last=at, last_recorded=now))
            return None
        if len(self._unwritten) >= self.limits.remembered:
            return "full"
        if not self._buckets.of(what.regarding, self.limits.per_object).allows(now):
            return "spam"
        self._keep(PendingEvent(what, first=at, last=at, last_recorded=now, due=now))
        return None

    def due(self, now: float) -> list[PendingEvent]:
        """Events that may be written now, oldest first."""
        return [entry for entry in self.unwritten() if entry.due <= now]

    def unwritten(self) -> list[PendingEvent]:
        return [self._entries[what] for what in self._unwritten]

    @property
    def waiting(self) -> int:
        """Number of Events that are not written, or written with too low a count."""
        return len(self._unwritten)

    def next_due(self) -> float | None:
        return min((entry.due for entry in self.unwritten()), default=None)

    def written(self, entry: PendingEvent, now: float) -> None:
        """`entry` was written; it may have been recorded again during the write."""
        current = self._entries.get(entry.what, entry)
        due = now + self.limits.series_every
        self._keep(replace(current, name=entry.name, written_count=entry.count, attempts=0, due=due))

    def failed(self, entry: PendingEvent, retry_at: float) -> None:
        current = self._entries.get(entry.what, entry)
        self._keep(replace(current, name=entry.name, attempts=entry.attempts + 1, due=retry_at))

    def vanished(self, entry: PendingEvent) -> None:
        """The Event has expired in the API server: write it as a new one."""
        current = self._entries.get(entry.what, entry)
        self._keep(replace(current, name="", written_count=0, due=entry.due))

    def dropped(self, entry: PendingEvent) -> None:
        self._entries.pop(entry.what, None)
        self._unwritten.pop(entry.what, None)

    @property
    def remembered(self) -> int:
        return len(self._entries)

    def _keep(self, entry: PendingEvent) -> None:
        self._entries[entry.what] = entry
        self._entries.move_to_end(entry.what)
        if entry.unwritten:
            self._unwritten.setdefault(entry.what)
        else:
            self._unwritten.pop(entry.what, None)
        while len(self._entries) > self.limits.remembered:
            forgotten, _ = self._entries.popitem(last=False)
            self._unwritten.pop(forgotten, None)


def truncate(note: str, limit: int = NOTE_BYTES) -> str:
    """The note in at most `limit` bytes, truncated after a word with an ellipsis."""
    encoded = note.encode()
    if len(encoded) <= limit:
        return note
    kept = encoded[: limit - len("…".encode())].decode(errors="ignore")
    head, space, _ = kept.rpartition(" ")
    return (head if space and len(head) > len(kept) // 2 else kept).rstrip() + "…"
