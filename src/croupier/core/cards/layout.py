"""The annotation `run.ai/mig.config`: which MIG layout each card of a node should have.

Parsing is strict: an unknown field is refused with its path, and the whole annotation is refused with it, so
that a layout is never applied in part. Cards that the annotation does not name stay as they are.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from croupier.core.cards import mig
from croupier.core.cards.mig import Kind, Layout
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import request

ANNOTATION: Final = "run.ai/mig.config"
SELECTED: Final = "selected"

_VERSION: Final = "v1"
_ALL: Final = "all"
_FILLED: Final = "all-"
_DISABLED: Final = "all-disabled"
_BALANCED: Final = "all-balanced"
_FILTER: Final = re.compile("0x([0-9a-f]{4})([0-9a-f]{4})", re.IGNORECASE)
_MOST_ENTRIES: Final = 64
_MOST_INDEX: Final = 255
_KEYS: Final = frozenset({"devices", "device-filter", "mig-enabled", "mig-devices"})


@dataclass(frozen=True, slots=True)
class Wish:
    """One entry: the layout for some cards."""

    path: str
    """The path of the entry, such as mig-configs.selected[0]."""
    layout: Layout | str
    """A layout, or a name such as all-balanced that depends on the card model."""
    devices: frozenset[int] | None = None
    """Card indexes; None for all cards."""
    models: frozenset[tuple[str, str]] | None = None
    """PCI vendor and device ids that the entry is limited to; None for all models."""


@dataclass(frozen=True, slots=True)
class Wishes:
    entries: tuple[Wish, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """A card as far as a layout depends on it."""

    index: int
    product: str = ""
    vendor: str = ""
    device: str = ""
    kinds: tuple[Kind, ...] = ()


Targets: TypeAlias = Mapping[int, Layout]
"""Card index to desired layout."""


class _UnreadableError(Exception):
    """Carries the message of an invalid annotation up to `read` or `targets`."""


def read(data: object) -> Wishes | Refused:
    """Parse the decoded YAML of the annotation."""
    try:
        return Wishes(_selected(data))
    except _UnreadableError as unreadable:
        return Refused(f"annotation {ANNOTATION}", str(unreadable))


def _selected(data: object) -> tuple[Wish, ...]:
    if isinstance(data, str):
        return (_named(data, ANNOTATION),)
    top = _mapping(data, "")
    _only(top, {"version", "mig-configs"}, "")
    if top.get("version") != _VERSION:
        raise _UnreadableError(f"version is {_said(top.get('version'))}; it must be {_VERSION}")
    configs = _mapping(top.get("mig-configs"), "mig-configs")
    name = SELECTED if SELECTED in configs else next(iter(configs), "")
    if not name or (name != SELECTED and len(configs) > 1):
        raise _UnreadableError(
            f"mig-configs names {', '.join(configs) or 'no layout'}; name the layout to apply {SELECTED}"
        )
    chosen = configs[name]
    if isinstance(chosen, str) and chosen in configs and not isinstance(configs[chosen], str):
        name, chosen = chosen, configs[chosen]
    path = f"mig-configs.{name}"
    return (_named(chosen, path),) if isinstance(chosen, str) else _entries(chosen, path)


def _named(name: str, path: str) -> Wish:
    is_filling = name.startswith(_FILLED) and mig.is_profile(name.removeprefix(_FILLED))
    if name in (_DISABLED, _BALANCED) or is_filling:
        return Wish(path, name)
    raise _UnreadableError(
        f"{path} is {_said(name)}; write entries, or one of {_DISABLED}, {_BALANCED} and {_FILLED}<profile>"
    )


def _entries(data: object, path: str) -> tuple[Wish, ...]:
    if not isinstance(data, list) or not 1 <= len(data) <= _MOST_ENTRIES:
        raise _UnreadableError(f"{path} must be a list of 1 to {_MOST_ENTRIES} entries")
    return tuple(_entry(_mapping(entry, f"{path}[{n}]"), f"{path}[{n}]") for n, entry in enumerate(data))


def _entry(entry: Mapping[str, object], path: str) -> Wish:
    _only(entry, _KEYS, path)
    devices = _devices(entry.get("devices"), f"{path}.devices")
    models = _filter(entry["device-filter"], f"{path}.device-filter") if "device-filter" in entry else None
    enabled = entry.get("mig-enabled")
    if not isinstance(enabled, bool):
        raise _UnreadableError(f"{path}.mig-enabled is {_said(enabled)}; it must be true or false")
    layout = _layout(entry.get("mig-devices"), f"{path}.mig-devices")
    if enabled and not layout:
        raise _UnreadableError(
            f"{path}.mig-devices is empty; list profiles, or set mig-enabled: false for whole cards"
        )
    if layout and not enabled:
        raise _UnreadableError(f"{path} has mig-devices, but mig-enabled is false; set only one of them")
    return Wish(path, layout, devices, models)


def _devices(data: object, path: str) -> frozenset[int] | None:
    if data == _ALL:
        return None
    if not isinstance(data, list) or not data:
        raise _UnreadableError(f"{path} is {_said(data)}; it must be {_ALL}, or a list of card indexes")
    for number in data:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MOST_INDEX:
            raise _UnreadableError(f"{path} has {_said(number)}; an index must be a whole number from 0")
    if len(set(data)) < len(data):
        raise _UnreadableError(f"{path} names a card twice")
    return frozenset(data)


def _filter(data: object, path: str) -> frozenset[tuple[str, str]]:
    """mig-parted writes a model as device and vendor in one number, `0x233010DE`."""
    written = data if isinstance(data, list) else [data]
    found = [_FILTER.fullmatch(text) if isinstance(text, str) else None for text in written]
    models = frozenset((match[2].lower(), match[1].lower()) for match in found if match is not None)
    if not found or None in found:
        raise _UnreadableError(f'{path} is {_said(data)}; it must be PCI ids such as "0x233010DE"')
    return models


def _layout(data: object, path: str) -> Layout:
    """`{1g.10gb: 7}`, or a list with one profile for each device."""
    if data is None:
        return mig.WHOLE
    if isinstance(data, list):
        return mig.canonical((_profile(name, f"{path}[{n}]"), 1) for n, name in enumerate(data))
    counted = _mapping(data, path)
    for name, number in counted.items():
        _profile(name, path)
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= mig.MOST_PIECES:
            raise _UnreadableError(
                f"{path}.{name} is {_said(number)}; it must be a whole number from 1 to {mig.MOST_PIECES}"
            )
    return mig.canonical((name, number) for name, number in counted.items() if isinstance(number, int))


def _profile(name: object, path: str) -> str:
    if not isinstance(name, str) or not mig.is_profile(name):
        raise _UnreadableError(
            f"{path} has {_said(name)}, which is not a MIG profile; use one such as 1g.10gb"
        )
    return name


def _mapping(data: object, path: str) -> Mapping[str, object]:
    if isinstance(data, dict) and all(isinstance(key, str) for key in data):
        return data
    raise _UnreadableError(f"{path or 'the annotation'} must be a mapping of names, not {_said(data)}")


def _only(entry: Mapping[str, object], known: Iterable[str], path: str) -> None:
    if unknown := sorted(set(entry) - set(known)):
        where = f"{path}.{unknown[0]}" if path else unknown[0]
        raise _UnreadableError(f"{_bare(where)} is unknown; known fields: {', '.join(sorted(known))}")


def _said(data: object) -> str:
    return "missing" if data is None else request.shown(data if isinstance(data, str) else repr(data))


def _bare(text: str) -> str:
    return request.shown(text)[1:-1]


def targets(config: Wishes, cards: Sequence[Card]) -> Targets | Refused:
    """The desired layout of each named card. Every layout fits on its card."""
    try:
        return _targets(config, cards)
    except _UnreadableError as unreadable:
        return Refused(f"annotation {ANNOTATION}", str(unreadable))


def _targets(config: Wishes, cards: Sequence[Card]) -> Targets:
    indexes = {card.index for card in cards}
    by_card: dict[int, tuple[str, Layout]] = {}
    for entry in config.entries:
        if missing := sorted((entry.devices or frozenset()) - indexes):
            raise _UnreadableError(f"{entry.path}.devices names card {missing[0]}; {_there(indexes)}")
        for card in cards:
            layout = _wished(entry, card) if _concerns(entry, card) else None
            if layout is None:
                continue
            if card.index in by_card:
                raise _UnreadableError(
                    f"{entry.path} and {by_card[card.index][0]} both name card {card.index}"
                )
            by_card[card.index] = (entry.path, layout)
    return {index: layout for index, (_, layout) in sorted(by_card.items())}


def _there(indexes: Iterable[int]) -> str:
    return f"the node has {', '.join(str(index) for index in sorted(indexes)) or 'no cards'}"


def _concerns(entry: Wish, card: Card) -> bool:
    named = entry.devices is None or card.index in entry.devices
    return named and (entry.models is None or (card.vendor, card.device) in entry.models)


def _wished(entry: Wish, card: Card) -> Layout | None:
    """The layout for this card; None if a named layout does not apply to its model."""
    if isinstance(entry.layout, str):
        return _by_name(entry, entry.layout, card) if card.kinds else None
    placed = mig.place(card.kinds, entry.layout)
    if isinstance(placed, Refused):
        raise _UnreadableError(f"{entry.path}: card {card.index} ({card.product}): {placed}")
    return entry.layout


def _by_name(entry: Wish, name: str, card: Card) -> Layout:
    if name == _DISABLED:
        return mig.WHOLE
    layout = balanced(card.kinds) if name == _BALANCED else mig.fill(card.kinds, name.removeprefix(_FILLED))
    if isinstance(layout, Refused):
        raise _UnreadableError(f"{entry.path}: card {card.index} ({card.product}): {layout}")
    return layout


def balanced(kinds: Sequence[Kind]) -> Layout | Refused:
    """Two devices of one compute slice, one of two, and one of three if the model supports it."""
    usual: dict[int, str] = {}
    for kind in sorted(kinds, key=lambda kind: (kind.memory_mib, kind.memory_slices, "+" in kind.name)):
        usual.setdefault(kind.compute_slices, kind.name)
    layout = mig.canonical(
        (usual[slices], number) for slices, number in ((1, 2), (2, 1), (3, 1)) if slices in usual
    )
    placed = mig.place(kinds, layout)
    return placed if isinstance(placed, Refused) else layout


def changes(now: Targets, wanted: Targets) -> Targets:
    """Only the cards whose layout differs from the wanted one."""
    return {index: layout for index, layout in wanted.items() if index in now and now[index] != layout}
