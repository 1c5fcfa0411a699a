"""Decodes a page of a list: bytes in, typed objects out.

One object that does not match its type must not hide the other 499. So a page that
does not decode as a whole is decoded item by item, and the invalid items are named.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from croupier.kube.client import codec
from croupier.kube.client.errors import Undecodable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[T]):
    """The objects at one `resource_version`; `skipped` has the decoding errors of the other objects."""

    items: list[T]
    resource_version: str
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    items: list[T]
    resource_version: str
    next: str
    """Continue token of the next page; empty on the last."""
    skipped: tuple[str, ...] = ()


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Typed(msgspec.Struct, Generic[T], frozen=True):
    metadata: _Meta
    items: list[T] | None = None


class _Loose(msgspec.Struct, frozen=True):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


def page(type_: type[T], body: bytes) -> ListPage[T]:
    try:
        whole: _Typed[T] = codec.decoder(_Typed[type_]).decode(body)  # type: ignore[valid-type]  # a value here
    except msgspec.ValidationError:
        return _one_by_one(type_, body)
    except codec.NOT_JSON as bad:
        raise Undecodable(f"the list is not JSON: {bad}") from bad
    return ListPage(whole.items or [], whole.metadata.resource_version, whole.metadata.continue_)


def _one_by_one(type_: type[T], body: bytes) -> ListPage[T]:
    try:
        loose = msgspec.json.decode(body, type=_Loose)
    except msgspec.ValidationError as bad:
        raise Undecodable(f"not a list: {bad}") from bad
    items: list[T] = []
    skipped: list[str] = []
    for raw in loose.items or []:
        try:
            items.append(codec.decode(type_, raw))
        except Undecodable as bad:
            skipped.append(str(bad))
    return ListPage(items, loose.metadata.resource_version, loose.metadata.continue_, tuple(skipped))
