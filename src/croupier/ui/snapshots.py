"""Encoded snapshots of the tables, at most one a second for each class of viewers and part."""

import asyncio
import gzip
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from croupier.kube.client.clock import Clock, SystemClock
from croupier.ui import redaction
from croupier.ui.metrics import PageMetrics
from croupier.ui.rights import Rights
from croupier.ui.tables import Tables

MAX_AGE: Final = 1.0
"""Seconds that a snapshot is used although the tables have changed: the stream continues from its number."""
MAX_KEPT: Final = 64
COMPRESSION: Final = 9


@dataclass(frozen=True, slots=True)
class EncodedSnapshot:
    seq: int
    made: float
    compressed: bytes


class Snapshots:
    def __init__(self, tables: Tables, metrics: PageMetrics, clock: Clock | None = None) -> None:
        self._tables = tables
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._kept: OrderedDict[tuple[Rights, str], EncodedSnapshot] = OrderedDict()
        self._locks: dict[tuple[Rights, str], asyncio.Lock] = {}

    async def get(self, rights: Rights, part: str) -> bytes:
        """The snapshot of a part as compressed JSON."""
        key = rights, part
        async with self._locks.setdefault(key, asyncio.Lock()):
            kept = self._kept.get(key)
            if kept is None or not self._is_current(kept):
                kept = await self._encode(rights, part)
                self._kept[key] = kept
            self._kept.move_to_end(key)
        while len(self._kept) > MAX_KEPT:
            oldest, _ = self._kept.popitem(last=False)
            self._locks.pop(oldest, None)
        return kept.compressed

    def _is_current(self, kept: EncodedSnapshot) -> bool:
        return kept.seq == self._tables.seq or self._clock.monotonic() - kept.made < MAX_AGE

    async def _encode(self, rights: Rights, part: str) -> EncodedSnapshot:
        tables, began = self._tables, self._clock.monotonic()
        whole = tables.rows(part)
        seq, at = tables.seq, self._clock.now().timestamp()
        cut = redaction.tables(whole, rights, tables)
        head = {"process": tables.process, "seq": seq, "at": at, "part": part}
        raw = msgspec.json.encode({**head, "tables": cut})
        compressed = await asyncio.to_thread(compress, raw)
        self._metrics.snapshot_seconds.labels(part).observe(self._clock.monotonic() - began)
        return EncodedSnapshot(seq, began, compressed)


def compress(raw: bytes) -> bytes:
    return gzip.compress(raw, COMPRESSION, mtime=0)


def decompress(compressed: bytes) -> Any:
    return gzip.decompress(compressed)
