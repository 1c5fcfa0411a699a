"""The history of the rows: all rows every five minutes, and the deltas in between. No I/O.

It keeps 24 hours or 64 MiB, whichever ends first. Where segments are stored is an argument: in memory, or in
files (history_files.py), which keep more.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from croupier.ui import tables
from croupier.ui.tables import Delta

SEGMENT_SECONDS: Final = 300.0
MAX_SECONDS: Final = 24 * 3600.0
MAX_BYTES: Final = 64 * 1024 * 1024
COMPRESSION: Final = 3

Rows = dict[str, dict[str, Any]]


class JournalLine(msgspec.Struct, frozen=True):
    """All rows (`whole`), or the rows that changed."""

    at: float
    tables: Rows
    seq: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """A closed part of the history."""

    begins: float
    ends: float
    changes: int
    content: Callable[[], bytes] = field(repr=False)
    """Reads the compressed lines."""
    size: int = 0
    """Bytes in memory."""


class SegmentStore(Protocol):
    """Where lines and closed segments are kept."""

    def append(self, begins: float, line: bytes) -> None: ...
    def close(self, begins: float, ends: float, *, changes: int, compressed: bytes) -> Segment: ...
    def drop(self, segment: Segment) -> None: ...


class MemorySegments:
    def append(self, begins: float, line: bytes) -> None:
        """The journal itself keeps the lines of the open segment."""

    def close(self, begins: float, ends: float, *, changes: int, compressed: bytes) -> Segment:
        return Segment(begins, ends, changes, lambda: compressed, len(compressed))

    def drop(self, segment: Segment) -> None:
        """A dropped segment is freed with its object."""


@dataclass(frozen=True, slots=True)
class HistoryState:
    """The rows at one time."""

    at: float
    seq: int
    rows: Rows


class Journal:
    def __init__(
        self,
        store: SegmentStore | None = None,
        segments: Sequence[Segment] = (),
        *,
        max_bytes: int = MAX_BYTES,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        """`segments` are those of an earlier process."""
        self._store: SegmentStore = store or MemorySegments()
        self._segments = list(segments)
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._lines: list[bytes] = []
        self._begins = 0.0
        self._size = 0
        self.ends = 0.0
        self._decoder = msgspec.json.Decoder(JournalLine)

    @property
    def begins(self) -> float:
        """Where the memory begins; 0 before the first row."""
        return self._segments[0].begins if self._segments else self._begins

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self._size + sum(segment.size for segment in self._segments)

    def record(self, delta: Delta, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Add a delta; `rows` are all rows after it. A segment that is long enough is closed before."""
        if not self._lines or delta.at - self._begins >= SEGMENT_SECONDS:
            self.close()
            self._begins = delta.at
            self._add({"at": delta.at, "seq": delta.seq, "tables": rows, "whole": True})
        else:
            self._add({"at": delta.at, "seq": delta.seq, "tables": delta.tables})
        self.ends = delta.at

    def close(self) -> None:
        """Close the open segment, and forget what is too old."""
        if self._lines:
            compressed = zlib.compress(b"\n".join(self._lines), COMPRESSION)
            changes = len(self._lines) - 1
            closed = self._store.close(self._begins, self.ends, changes=changes, compressed=compressed)
            self._segments.append(closed)
        self._lines, self._size = [], 0
        while self._segments and self._is_too_much():
            self._store.drop(self._segments.pop(0))

    def _is_too_much(self) -> bool:
        oldest = self._segments[0]
        return self.size > self._max_bytes or self.ends - oldest.ends > self._max_seconds

    def _add(self, line: dict[str, Any]) -> None:
        encoded = msgspec.json.encode(line)
        self._lines.append(encoded)
        self._size += len(encoded)
        self._store.append(self._begins, encoded)

    def marks(self) -> list[tuple[float, int]]:
        """The number of changes of each segment."""
        marks = [(segment.begins, segment.changes) for segment in self._segments]
        return [*marks, (self._begins, len(self._lines) - 1)] if self._lines else marks

    def at(self, time: float) -> HistoryState | None:
        """The rows as they were; None before the memory begins."""
        chosen = next((read for begins, read in reversed(self._sources()) if begins <= time), None)
        if chosen is None:
            return None
        rows: Rows = {}
        last = (0.0, 0)
        for line in self._decoded(chosen()):
            if line.at > time:
                break
            if line.whole:
                rows = line.tables
            else:
                tables.fold(rows, line.tables)
            last = line.at, line.seq
        return HistoryState(*last, rows)

    def replay(self) -> Callable[[], Iterator[JournalLine]]:
        """All lines, oldest first, as they are now; the result may be read in another thread."""
        sources = [read for _, read in self._sources()]
        return lambda: (line for read in sources for line in self._decoded(read()))

    def _sources(self) -> list[tuple[float, Callable[[], list[bytes]]]]:
        closed = [(segment.begins, _unpacker(segment)) for segment in self._segments]
        return [*closed, (self._begins, self._lines.copy)] if self._lines else closed

    def _decoded(self, lines: Sequence[bytes]) -> Iterator[JournalLine]:
        return (self._decoder.decode(line) for line in lines)


def _unpacker(segment: Segment) -> Callable[[], list[bytes]]:
    return lambda: zlib.decompress(segment.content()).split(b"\n")
