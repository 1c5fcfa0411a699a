"""The watch protocol without I/O: bytes in, events out.

Lines are split here, because HTTP libraries limit the length of a line and objects
may be longer. A line that cannot be decoded is reported and skipped: one invalid
object must not hide all others.
"""

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec

from croupier.kube.client import codec, errors
from croupier.kube.client.errors import ApiError, Undecodable

T = TypeVar("T")

MAX_LINE_BYTES = 64 * 2**20
"""Maximum number of bytes of one line. Objects have at most a few MiB."""


class ObjectEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


@dataclass(frozen=True, slots=True)
class Bookmark:
    """All events up to this version were sent; a watch can resume from here."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class SkippedEvent:
    """A line that could not be decoded, with the fields that could."""

    reason: str
    type: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class WatchError:
    """The API server ended the watch with an error; after Gone, list again."""

    error: ApiError


WatchEvent = ObjectEvent[T] | Bookmark | SkippedEvent | WatchError


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str | None = None
    name: str | None = None
    resource_version: str | None = None


class _Named(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Envelope(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class WatchDecoder(Generic[T]):
    """Decodes the bytes of one watch, in chunks of any size, into events."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._fast: msgspec.json.Decoder[ObjectEvent[T]] = codec.decoder(ObjectEvent[type_])  # type: ignore[valid-type]  # the type is a value here
        self._tail: list[bytes] = []
        self._waiting = 0

    def feed(self, data: bytes) -> "list[WatchEvent[T]]":
        end = data.rfind(b"\n")
        if end < 0:
            return self._keep(data)
        self._tail.append(data[:end])
        whole = b"".join(self._tail)
        self._tail, self._waiting = [], 0
        events = [self._read(line) for line in whole.split(b"\n") if line and not line.isspace()]
        return events + self._keep(data[end + 1 :])

    def _keep(self, rest: bytes) -> "list[WatchEvent[T]]":
        if not rest:
            return []
        self._tail.append(rest)
        self._waiting += len(rest)
        if self._waiting <= MAX_LINE_BYTES:
            return []
        self._tail, self._waiting = [], 0
        return [
            WatchError(ApiError(500, "LineTooLong", f"a watch line is longer than {MAX_LINE_BYTES} bytes"))
        ]

    def _read(self, line: bytes) -> "WatchEvent[T]":
        try:
            return self._fast.decode(line)
        except codec.NOT_JSON:
            return _read_slowly(self._type, line)


def _read_slowly(type_: type[T], line: bytes) -> "WatchEvent[T]":
    """Decode the uncommon lines: bookmarks, errors, nulls for lists, invalid objects."""
    try:
        envelope = msgspec.json.decode(line, type=_Envelope)
    except codec.NOT_JSON as bad:
        return SkippedEvent(f"not a watch event: {bad}")
    match envelope.type:
        case "ADDED" | "MODIFIED" | "DELETED":
            return _change(type_, envelope)
        case "BOOKMARK":
            return Bookmark(_meta(envelope).resource_version or "")
        case "ERROR":
            return WatchError(errors.from_status(_status(envelope), request="the watch"))
        case unknown:
            return SkippedEvent(f"unknown event type {unknown!r}", type=unknown)


def _change(type_: type[T], envelope: _Envelope) -> "WatchEvent[T]":
    kind: Any = envelope.type
    try:
        return ObjectEvent(kind, codec.decode(type_, envelope.object))
    except Undecodable as bad:
        meta = _meta(envelope)
        return SkippedEvent(
            str(bad), kind, meta.namespace or "", meta.name or "", meta.resource_version or ""
        )


def _meta(envelope: _Envelope) -> _Meta:
    try:
        return msgspec.json.decode(envelope.object, type=_Named).metadata
    except codec.NOT_JSON:
        return _Meta()


def _status(envelope: _Envelope) -> errors.Status:
    try:
        return msgspec.json.decode(envelope.object, type=errors.Status)
    except codec.NOT_JSON:
        return errors.Status(message="the watch failed without a message")
