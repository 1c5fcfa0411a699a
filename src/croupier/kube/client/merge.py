"""Merges typed changes into the whole object, so that a PUT erases no unknown field.

Croupier's types hold only the fields it reads. A written object must keep the
other fields, such as those of a newer version of the CRD or of another controller.
So the typed views before and after the change are compared, and only the
differences are written into the raw object, at any depth. Pure.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import FieldInfo

from croupier.kube.client import codec
from croupier.kube.client.resource import Raw

ListKeys = Mapping[Any, Sequence[str]]
"""The attributes that identify items of a list: `{Container: ("name",)}`."""

MAP_KEYS = "x-kubernetes-list-map-keys"
"""The schema extension with which a type declares the same for one of its lists."""

_NO_KEYS: ListKeys = {}


def typed(raw: Raw, new: msgspec.Struct, *, keys: ListKeys = _NO_KEYS) -> Raw:
    """`raw` with its known fields as in `new`; decoding the result to the type of `new` gives `new`.

    Items of lists are matched by the list's own map keys, then by `keys`, then by equality with the
    old item. An item without a match is written as it is typed.
    """
    return _struct(raw, codec.convert(type(new), raw), new, keys)


def _struct(raw: Raw, old: msgspec.Struct, new: msgspec.Struct, keys: ListKeys) -> Raw:
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
    """Cached, because msgspec reads the annotations of the type again on each call, which is slow."""
    return msgspec.structs.fields(type_)


def _both_structs(old: Any, new: Any) -> bool:
    """Such a field is never removed as a whole, even when empty: it may contain unknown fields."""
    return isinstance(new, msgspec.Struct) and type(old) is type(new)


@cache
def _declared(owner: type[msgspec.Struct], name: str) -> ListKeys:
    """The map keys that the schema of this list declares for its items, as Python names."""
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


def _value(raw: Any, old: Any, new: Any, keys: ListKeys) -> Any:
    if _both_structs(old, new) and isinstance(raw, dict):
        return _struct(raw, old, new, keys)
    if isinstance(new, dict) and isinstance(old, dict) and isinstance(raw, dict):
        return {key: _item(raw, old, key, value, keys) for key, value in new.items()}
    if isinstance(new, list | tuple) and isinstance(old, list | tuple) and isinstance(raw, list):
        return _list(raw, old, new, keys)
    return _plain(new)


def _item(raw: Raw, old: Mapping[Any, Any], key: Any, new: Any, keys: ListKeys) -> Any:
    if key in old and old[key] == new and key in raw:
        return raw[key]
    return _value(raw.get(key), old.get(key), new, keys)


def _list(raw: list[Any], old: Sequence[Any], new: Sequence[Any], keys: ListKeys) -> list[Any]:
    known = list(zip(raw, old, strict=True))
    result = []
    for item in new:
        position = _find(item, known, keys)
        if position is None:
            result.append(_plain(item))
            continue
        raw_item, old_item = known.pop(position)
        result.append(raw_item if old_item == item else _value(raw_item, old_item, item, keys))
    return result


def _find(item: Any, known: list[tuple[Any, Any]], keys: ListKeys) -> int | None:
    """The position of `item` among the old items, if it is there."""
    names = keys.get(type(item))
    for position, (_, old) in enumerate(known):
        if names is None or type(old) is not type(item):
            same = old == item
        else:
            same = all(getattr(old, name) == getattr(item, name) for name in names)
        if same:
            return position
    return None


def _plain(value: Any) -> Any:
    """The value as decoded JSON: tuples become lists, times become strings."""
    return msgspec.json.decode(msgspec.json.encode(value))
