"""Decodes and encodes objects as typed JSON, tolerating the nulls that Go programs send.

Go writes an empty slice as `null`, which a strict type does not accept. The fast
path decodes directly into the type. Only an object that does not validate takes
the slow path, in which a null counts as absent (as it does in Kubernetes).
"""

from functools import cache
from typing import Any, TypeVar

import msgspec

from croupier.kube.client.errors import Undecodable
from croupier.kube.client.resource import Raw, Resource

T = TypeVar("T")

Body = msgspec.Struct | Raw
"""A request body: a Struct, or the object as a dict."""

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no JSON, no UTF-8, or nested too deeply to be read."""

SAME_KIND_SUBRESOURCES = frozenset({None, "status", "resize", "ephemeralcontainers"})
"""Subresources whose body is the object itself; other subresources have their own kinds."""


@cache
def decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """Cached, because decoders are expensive to create and safe to share."""
    return msgspec.json.Decoder(type_)


def decode(type_: type[T], data: bytes | msgspec.Raw) -> T:
    try:
        typed: T = decoder(type_).decode(data)  # type: ignore[arg-type]  # mypy doubts that types hash
    except msgspec.ValidationError:
        return _decode_without_nulls(type_, data)
    except NOT_JSON as bad:
        raise Undecodable(f"not JSON: {bad}") from bad
    return typed


def convert(type_: type[T], raw: Raw) -> T:
    """The typed view of a whole object."""
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError:
        return _convert_without_nulls(type_, raw)


def encode(resource: Resource[Any], body: Body, *, subresource: str | None = None) -> bytes:
    """JSON with apiVersion and kind, which custom resources require."""
    fields = msgspec.to_builtins(body) if isinstance(body, msgspec.Struct) else body
    if subresource in SAME_KIND_SUBRESOURCES:
        fields = {"apiVersion": resource.api_version, "kind": resource.kind, **fields}
    return msgspec.json.encode(fields)


def without_nulls(value: Any) -> Any:
    """The value without null fields. Nulls in lists stay, because they hold a position."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _decode_without_nulls(type_: type[T], data: bytes | msgspec.Raw) -> T:
    try:
        raw = msgspec.json.decode(data)
    except NOT_JSON as bad:
        raise Undecodable(f"not JSON: {bad}") from bad
    return _convert_without_nulls(type_, raw)


def _convert_without_nulls(type_: type[T], raw: Any) -> T:
    try:
        return msgspec.convert(without_nulls(raw), type_)
    except msgspec.ValidationError as bad:
        raise Undecodable(f"{_name(raw)}: {bad}") from bad


def _name(raw: Any) -> str:
    meta = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(meta, dict):
        return "an object without metadata"
    return f"{raw.get('kind') or 'object'} {meta.get('namespace') or ''}/{meta.get('name') or ''}"
