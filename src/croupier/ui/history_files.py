"""The history in files (`croupier ui --history DIR`): it survives a restart and keeps more than memory would.

A closed segment is one compressed file with its times in its name. The open segment is a file of lines; what
a crash left of it is closed at the next start. The files name pods, so only their owner reads them.
"""

import contextlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec
import structlog

from croupier.ui.journal import COMPRESSION, JournalLine, Segment

MAX_SECONDS: Final = 30 * 24 * 3600.0
MAX_BYTES: Final = 1024**3
"""The size of all files."""
CLOSED: Final = re.compile(r"(\d+)-(\d+)-(\d+)\.history")
"""Begin and end in milliseconds, and the number of changes."""
OPEN_SUFFIX: Final = ".lines"

log = structlog.get_logger(__name__)


class HistoryFiles:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._failed = False

    def load(self) -> list[Segment]:
        """The segments of earlier processes, oldest first."""
        for path in self._folder.glob(f"*{OPEN_SUFFIX}"):
            self._recover(path)
        found = [
            (int(match[1]), self._segment(path, match))
            for path in self._folder.glob("*.history")
            if (match := CLOSED.fullmatch(path.name)) is not None
        ]
        return [segment for _, segment in sorted(found, key=lambda entry: entry[0])]

    def append(self, begins: float, line: bytes) -> None:
        with self._guarded(), _private(self._open_path(begins), "ab") as file:
            file.write(line + b"\n")

    def close(self, begins: float, ends: float, *, changes: int, compressed: bytes) -> Segment:
        path = self._folder / f"{_millis(begins)}-{_millis(ends)}-{changes}.history"
        with self._guarded():
            partial_path = path.with_suffix(".part")
            with _private(partial_path, "wb") as file:
                file.write(compressed)
            partial_path.rename(path)
            self._open_path(begins).unlink(missing_ok=True)
        if path.exists():
            return Segment(begins, ends, changes, path.read_bytes, len(compressed))
        return Segment(begins, ends, changes, lambda: compressed, len(compressed))

    def drop(self, segment: Segment) -> None:
        for path in self._folder.glob(f"{_millis(segment.begins)}-*.history"):
            with self._guarded():
                path.unlink(missing_ok=True)

    def _segment(self, path: Path, match: re.Match[str]) -> Segment:
        begins, ends = int(match[1]) / 1000, int(match[2]) / 1000
        return Segment(begins, ends, int(match[3]), path.read_bytes, path.stat().st_size)

    def _recover(self, path: Path) -> None:
        """Close what an interrupted process left; a crash or a full disk may have cut a line."""
        lines = list(_complete(path.read_bytes().split(b"\n")))
        if lines:
            ends = msgspec.json.decode(lines[-1], type=JournalLine).at
            compressed = zlib.compress(b"\n".join(lines), COMPRESSION)
            begins = int(path.name.removesuffix(OPEN_SUFFIX)) / 1000
            self.close(begins, ends, changes=len(lines) - 1, compressed=compressed)
        path.unlink(missing_ok=True)

    def _open_path(self, begins: float) -> Path:
        return self._folder / f"{_millis(begins)}{OPEN_SUFFIX}"

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """A full or missing disk must not end the page: the segment stays in memory."""
        try:
            yield
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning(f"the history cannot be written and is kept in memory: {error}", error=str(error))
            self._failed = True


def _complete(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines before the first one that cannot be read."""
    for line in lines:
        try:
            msgspec.json.decode(line, type=JournalLine)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        yield line


def _private(path: Path, mode: str) -> IO[bytes]:
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def _millis(moment: float) -> int:
    return round(moment * 1000)
