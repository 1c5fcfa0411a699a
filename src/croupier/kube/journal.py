"""Aggregates Kubernetes Events into series and limits their rate. Pure.

Repetitions of the same Event about the same object form a series: one Event with a
growing count. The number of Events per object is rate limited, because a
controller in a loop could otherwise fill etcd. Memory is bounded: old series are
forgotten, and their next repetition starts a new Event.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, NamedTuple

from croupier.kube.bucket import Bucket, Rate

NOTE_BYTES = 1024
"""Maximum length of a note; the API server refuses longer ones."""


SPARSE = Rate(per_second=1 / 300, burst=25)


class Reference(NamedTuple):
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Happening(NamedTuple):
    """The content of an Event, without its time and count."""

    regarding: Reference
    reason: str
    note: str
    action: str
    type: Literal["Normal", "Warning"] = "Normal"
    related: Reference | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    per_object: Rate = SPARSE
    series_every: float = 10.0
    """Seconds between two updates of one series."""
    series_quiet: float = 360.0
    """Seconds without repetition after which the same content starts a new Event."""
    remembered: int = 4096


@dataclass(frozen=True, slots=True)
class Entry:
    """One Event. `written_count` is the count in the API server: 0 before the Event exists."""

    what: Happening
    first: datetime
    last: datetime
    heard: float
    """When it was last recorded, monotonic."""
    due: float
    """The earliest time of the next write, monotonic."""
    count: int = 1
    told: int = 0
    attempts: int = 0
    name: str = ""

    @property
    def unwritten(self) -> bool:
        return self.count > self.told


@dataclass(slots=True)
class Journal:
    limits: Limits = field(default_factory=Limits)
    _entries: OrderedDict[Happening, Entry] = field(init=False, default_factory=OrderedDict)
    _unwritten: dict[Happening, None] = field(init=False, default_factory=dict)
    _buckets: OrderedDict[Reference, Bucket] = field(init=False, default_factory=OrderedDict)

    def note(self, what: Happening, now: float, at: datetime) -> str | None:
        """Add an Event; return the reason if it is dropped."""
        old = self._entries.get(what)
        if old is not None and (old.unwritten or now - old.heard < self.limits.series_quiet):
            self._keep(replace(old, count=old.count + 1, last=at, heard=now))
            return None
        if len(self._unwritten) >= self.limits.remembered:
            return "full"
        if not self._bucket(what.regarding).allows(now):
            return "spam"
        self._keep(Entry(what, first=at, last=at, heard=now, due=now))
        return None

    def due(self, now: float) -> list[Entry]:
        """Events that may be written now, oldest first."""
        return [entry for entry in self.unwritten() if entry.due <= now]

    def unwritten(self) -> list[Entry]:
        return [self._entries[what] for what in self._unwritten]

    @property
    def waiting(self) -> int:
        """Number of Events that are not written, or written with too low a count."""
        return len(self._unwritten)

    def next_due(self) -> float | None:
        return min((entry.due for entry in self.unwritten()), default=None)

    def written(self, entry: Entry, now: float) -> None:
        """`entry` was written; it may have been recorded again during the write."""
        current = self._entries.get(entry.what, entry)
        due = now + self.limits.series_every
        self._keep(replace(current, name=entry.name, told=entry.count, attempts=0, due=due))

    def failed(self, entry: Entry, retry_at: float) -> None:
        current = self._entries.get(entry.what, entry)
        self._keep(replace(current, name=entry.name, attempts=entry.attempts + 1, due=retry_at))

    def vanished(self, entry: Entry) -> None:
        """The Event has expired in the API server: write it as a new one."""
        current = self._entries.get(entry.what, entry)
        self._keep(replace(current, name="", told=0, due=entry.due))

    def dropped(self, entry: Entry) -> None:
        self._entries.pop(entry.what, None)
        self._unwritten.pop(entry.what, None)

    @property
    def remembered(self) -> int:
        return len(self._entries)

    def _keep(self, entry: Entry) -> None:
        self._entries[entry.what] = entry
        self._entries.move_to_end(entry.what)
        if entry.unwritten:
            self._unwritten.setdefault(entry.what)
        else:
            self._unwritten.pop(entry.what, None)
        while len(self._entries) > self.limits.remembered:
            forgotten, _ = self._entries.popitem(last=False)
            self._unwritten.pop(forgotten, None)

    def _bucket(self, regarding: Reference) -> Bucket:
        bucket = self._buckets.setdefault(regarding, Bucket(self.limits.per_object))
        self._buckets.move_to_end(regarding)
        while len(self._buckets) > self.limits.remembered:
            self._buckets.popitem(last=False)
        return bucket


def cut(note: str, limit: int = NOTE_BYTES) -> str:
    """The note in at most `limit` bytes, truncated after a word with an ellipsis."""
    encoded = note.encode()
    if len(encoded) <= limit:
        return note
    kept = encoded[: limit - len("…".encode())].decode(errors="ignore")
    head, space, _ = kept.rpartition(" ")
    return (head if space and len(head) > len(kept) // 2 else kept).rstrip() + "…"
