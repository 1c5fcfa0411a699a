"""Deltas as server-sent events, encoded once for all viewers with the same rights.

A client that does not read is disconnected with `reset` before its queue grows: it gets whole deltas or a new
snapshot, never a part. docs/ui-api.md describes the events.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from croupier.ui import redaction
from croupier.ui.metrics import PageMetrics
from croupier.ui.rights import Rights
from croupier.ui.tables import Delta, Tables

MAX_STREAMS: Final = 200
MAX_BEHIND: Final = 1_000_000
"""Bytes that a client may be behind."""
MAX_ENCODED: Final = 8_000_000
"""Bytes of encoded deltas kept for clients of one class that come back."""
BEAT_INTERVAL: Final = 5.0
TOO_SLOW: Final = "the browser was more than 1 MB behind; it loads the page's data again"
FORGOTTEN: Final = "the server no longer has the changes since then; the page's data is loaded again"

_encoder = msgspec.json.Encoder()


class TooManyStreams(Exception):
    """The text is the sentence for the user. Becomes 503."""


class StreamClient:
    """The queue of one browser."""

    def __init__(self) -> None:
        self.ended = False
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._ready = asyncio.Event()

    def push(self, chunk: bytes) -> bool:
        """Queue a chunk; False if the client was too far behind and is reset instead."""
        if self.ended:
            return True
        if self._size + len(chunk) > MAX_BEHIND:
            self.end(reset(TOO_SLOW))
            return False
        self._add(chunk)
        return True

    def end(self, last: bytes = b"") -> None:
        """End the stream; with `last`, instead of everything that is queued."""
        if last:
            self._chunks.clear()
            self._add(last)
        self.ended = True
        self._ready.set()

    async def read(self) -> bytes:
        """Everything that is queued; empty at the end of the stream."""
        await self._ready.wait()
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        if not self.ended:
            self._ready.clear()
        return chunk

    def _add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        self._ready.set()


class _ViewerClass:
    """The encoded deltas of all viewers with the same rights."""

    def __init__(self, rights: Rights) -> None:
        self.rights = rights
        self.clients: set[StreamClient] = set()
        self._encoded: dict[int, bytes] = {}
        self._size = 0

    def encode(self, delta: Delta, tables: Tables) -> bytes:
        event = self._encoded.get(delta.seq)
        if event is None:
            cut = redaction.delta(delta.tables, delta.before, self.rights, tables)
            data = _encoder.encode({"seq": delta.seq, "at": delta.at, "tables": cut})
            event = b"id: %b.%d\nevent: delta\ndata: %b\n\n" % (tables.process.encode(), delta.seq, data)
            self._encoded[delta.seq] = event
            self._size += len(event)
            while self._size > MAX_ENCODED and len(self._encoded) > 1:
                self._size -= len(self._encoded.pop(next(iter(self._encoded))))
        return event


class StreamHub:
    def __init__(self, tables: Tables, contact: Callable[[], float], metrics: PageMetrics) -> None:
        self._tables = tables
        self._contact = contact
        self._metrics = metrics
        self._classes: dict[Rights, _ViewerClass] = {}
        self._closed = False

    def __len__(self) -> int:
        return sum(len(viewers.clients) for viewers in self._classes.values())

    def open(self, rights: Rights, after: str) -> StreamClient:
        """A stream of everything after the position, `process.seq`."""
        if len(self) >= MAX_STREAMS:
            raise TooManyStreams(
                f"the server already has {MAX_STREAMS} open streams; close other tabs, or try again later"
            )
        client = StreamClient()
        missed = self._missed(after)
        if missed is None or self._closed:
            client.end(reset(FORGOTTEN))
            return client
        viewers = self._classes.setdefault(rights, _ViewerClass(rights))
        viewers.clients.add(client)
        client.push(b"retry: 1000\n\n" + self._beat(0.0))
        for delta in missed:
            client.push(viewers.encode(delta, self._tables))
        self._metrics.streams.set(len(self))
        return client

    def drop(self, client: StreamClient) -> None:
        """The client has disconnected."""
        for viewers in self._classes.values():
            viewers.clients.discard(client)
        self._classes = {rights: viewers for rights, viewers in self._classes.items() if viewers.clients}
        self._metrics.streams.set(len(self))

    def publish(self, delta: Delta) -> None:
        self._metrics.deltas.inc()
        for viewers in self._classes.values():
            event = viewers.encode(delta, self._tables)
            for client in viewers.clients:
                if not client.push(event):
                    self._metrics.resets.inc()

    def beat(self, now: float) -> None:
        """Tell all clients that the server is alive, and how current its data is."""
        event = self._beat(now)
        for client in self._clients():
            client.push(event)

    def close(self) -> None:
        """End all streams: the process stops."""
        self._closed = True
        for client in self._clients():
            client.end()

    def _clients(self) -> Iterator[StreamClient]:
        return (client for viewers in self._classes.values() for client in viewers.clients)

    def _beat(self, now: float) -> bytes:
        contact = self._contact()
        data = _encoder.encode({"at": now or contact, "contact": contact})
        position = f"{self._tables.process}.{self._tables.seq}".encode()
        return b"id: %b\nevent: beat\ndata: %b\n\n" % (position, data)

    def _missed(self, after: str) -> Any:
        """The deltas after the position; None if they are not known."""
        if not after:
            return ()
        process, _, seq = after.rpartition(".")
        if process != self._tables.process or not (seq.isascii() and seq.isdigit()):
            return None
        return self._tables.since(int(seq))


def reset(reason: str) -> bytes:
    return b"event: reset\ndata: %b\n\n" % _encoder.encode({"reason": reason})
