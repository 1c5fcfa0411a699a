"""Typed changes laid over the whole object, so that a PUT erases nothing we do not know.

Our types hold only the fields we read. What is written back must still carry
the others: fields of a newer version of our kinds, or of someone else's. So
the typed view before and after are compared, and only what differs is changed
in the object as it was read, at any depth. Pure.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import FieldInfo

from croupier.kube import codec
from croupier.kube.resource import Raw

Keys = Mapping[Any, Sequence[str]]
"""Which attributes tell items of a list apart: `{Container: ("name",)}`."""

MAP_KEYS = "x-kubernetes-list-map-keys"
"""Where a type can say the same of one of its lists, in the words of its schema."""

_NO_KEYS: Keys = {}


def overlay(raw: Raw, new: msgspec.Struct, *, keys: Keys = _NO_KEYS) -> Raw:
    """`raw` with its known fields as in `new`; reading the result as `new`'s type gives `new`.

    Items of lists are recognised by the list's own map keys, by `keys`, else by being equal to what
    was read; an item that is none of these is written as it is typed.
    """
    return _struct(raw, codec.convert(type(new), raw), new, keys)


def _struct(raw: Raw, old: msgspec.Struct, new: msgspec.Struct, keys: Keys) -> Raw:
    result = dict(raw)
    for field in _fields(type(new)):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after:
            continue
        if _left_out(new, field, after) and not _both_structs(before, after):
            result.pop(field.encode_name, None)
        else:
            here = {**keys, **_declared(type(new), field.name)}
            result[field.encode_name] = _value(raw.get(field.encode_name), before, after, here)
    return result


@cache
def _fields(type_: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    """Looked up once: msgspec reads the annotations of the type anew each time, which takes a while."""
    return msgspec.structs.fields(type_)


def _both_structs(old: Any, new: Any) -> bool:
    """Such a field is never left out whole, even when emptied: strangers may live in it."""
    return isinstance(new, msgspec.Struct) and type(old) is type(new)


@cache
def _declared(owner: type[msgspec.Struct], name: str) -> Keys:
    """The map keys that the schema of this list declares for its items, by Python names."""
    (hint,) = (field.type for field in msgspec.structs.fields(owner) if field.name == name)
    wire_names: list[str] = []
    items: list[type[msgspec.Struct]] = []
    unread = [hint]
    while unread:
        part = unread.pop()
        if isinstance(part, msgspec.Meta):
            wire_names += (part.extra_json_schema or {}).get(MAP_KEYS, [])
        elif isinstance(part, type) and issubclass(part, msgspec.Struct):
            items.append(part)
        unread += [*get_args(part), *getattr(part, "__metadata__", ())]
    return {item: names for item in items if (names := _attributes(item, wire_names))}


def _attributes(item: type[msgspec.Struct], wire_names: list[str]) -> tuple[str, ...]:
    fields = msgspec.structs.fields(item)
    return tuple(field.name for field in fields if field.encode_name in wire_names)


def _left_out(owner: msgspec.Struct, field: FieldInfo, value: Any) -> bool:
    if value is None or value is UNSET:
        return True
    if not owner.__struct_config__.omit_defaults:
        return False
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(value == field.default_factory())
    return field.default is not msgspec.NODEFAULT and bool(value == field.default)


def _value(raw: Any, old: Any, new: Any, keys: Keys) -> Any:
    if _both_structs(old, new) and isinstance(raw, dict):
        return _struct(raw, old, new, keys)
    if isinstance(new, dict) and isinstance(old, dict) and isinstance(raw, dict):
        return {key: _item(raw, old, key, value, keys) for key, value in new.items()}
    if isinstance(new, list | tuple) and isinstance(old, list | tuple) and isinstance(raw, list):
        return _list(raw, old, new, keys)
    return _plain(new)


def _item(raw: Raw, old: Mapping[Any, Any], key: Any, new: Any, keys: Keys) -> Any:
    if key in old and old[key] == new and key in raw:
        return raw[key]
    return _value(raw.get(key), old.get(key), new, keys)


def _list(raw: list[Any], old: Sequence[Any], new: Sequence[Any], keys: Keys) -> list[Any]:
    known = list(zip(raw, old, strict=True))
    result = []
    for item in new:
        place = _find(item, known, keys)
        if place is None:
            result.append(_plain(item))
            continue
        raw_item, old_item = known.pop(place)
        result.append(raw_item if old_item == item else _value(raw_item, old_item, item, keys))
    return result


def _find(item: Any, known: list[tuple[Any, Any]], keys: Keys) -> int | None:
    """Where among the items as read this one is, if it is there."""
    names = keys.get(type(item))
    for place, (_, old) in enumerate(known):
        if names is None or type(old) is not type(item):
            same = old == item
        else:
            same = all(getattr(old, name) == getattr(item, name) for name in names)
        if same:
            return place
    return None


def _plain(value: Any) -> Any:
    """As JSON would give it back: tuples are lists, times are texts."""
    return msgspec.json.decode(msgspec.json.encode(value))
