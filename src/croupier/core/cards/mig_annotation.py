"""The annotation `run.ai/mig.config`: which MIG layout each card of a node should have.

Parsing is strict: an unknown field is refused with its path, and the whole annotation is refused with it, so
that a layout is never applied in part. Cards that the annotation does not name stay as they are.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from croupier.core.model import mig, name_list
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.mig import Layout, MigProfile
from croupier.core.model.refusal import Refusal

ANNOTATION: Final = "run.ai/mig.config"
SELECTED: Final = "selected"

_VERSION: Final = "v1"
_ALL: Final = "all"
_FILLED: Final = "all-"
_DISABLED: Final = "all-disabled"
_BALANCED: Final = "all-balanced"
_FILTER: Final = re.compile("0x([0-9a-f]{4})([0-9a-f]{4})", re.IGNORECASE)
_MAX_ENTRIES: Final = 64
_MAX_INDEX: Final = 255
_KEYS: Final = frozenset({"devices", "device-filter", "mig-enabled", "mig-devices"})


@dataclass(frozen=True, slots=True)
class MigConfigEntry:
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
class MigConfig:
    entries: tuple[MigConfigEntry, ...]


LayoutTargets: TypeAlias = Mapping[int, Layout]
"""Card index to desired layout."""


class _InvalidConfigError(Exception):
    """Carries the message of an invalid annotation up to `read` or `targets`."""


def read(data: object) -> MigConfig | Refusal:
    """Parse the decoded YAML of the annotation."""
    try:
        return MigConfig(_selected(data))
    except _InvalidConfigError as unreadable:
        return Refusal(f"annotation {ANNOTATION}", str(unreadable))


def _selected(data: object) -> tuple[MigConfigEntry, ...]:
    if isinstance(data, str):
        return (_named(data, ANNOTATION),)
    top = _mapping(data, "")
    _only(top, {"version", "mig-configs"}, "")
    if top.get("version") != _VERSION:
        raise _InvalidConfigError(f"version is {_shown(top.get('version'))}; it must be {_VERSION}")
    configs = _mapping(top.get("mig-configs"), "mig-configs")
    name = SELECTED if SELECTED in configs else next(iter(configs), "")
    if not name or (name != SELECTED and len(configs) > 1):
        names = name_list.named(map(_unquoted, configs)) or "no layout"
        raise _InvalidConfigError(f"mig-configs names {names}; name the layout to apply {SELECTED}")
    chosen = configs[name]
    if isinstance(chosen, str) and chosen in configs and not isinstance(configs[chosen], str):
        name, chosen = chosen, configs[chosen]
    path = f"mig-configs.{_unquoted(name)}"
    return (_named(chosen, path),) if isinstance(chosen, str) else _entries(chosen, path)


def _named(name: str, path: str) -> MigConfigEntry:
    is_filling = name.startswith(_FILLED) and mig.is_profile(name.removeprefix(_FILLED))
    if name in (_DISABLED, _BALANCED) or is_filling:
        return MigConfigEntry(path, name)
    raise _InvalidConfigError(
        f"{path} is {_shown(name)}; write entries, or one of {_DISABLED}, {_BALANCED} and {_FILLED}<profile>"
    )


def _entries(data: object, path: str) -> tuple[MigConfigEntry, ...]:
    if not isinstance(data, list) or not 1 <= len(data) <= _MAX_ENTRIES:
        raise _InvalidConfigError(f"{path} must be a list of 1 to {_MAX_ENTRIES} entries")
    return tuple(_entry(_mapping(entry, f"{path}[{n}]"), f"{path}[{n}]") for n, entry in enumerate(data))


def _entry(entry: Mapping[str, object], path: str) -> MigConfigEntry:
    _only(entry, _KEYS, path)
    devices = _devices(entry.get("devices"), f"{path}.devices")
    models = _filter(entry["device-filter"], f"{path}.device-filter") if "device-filter" in entry else None
    enabled = entry.get("mig-enabled")
    if not isinstance(enabled, bool):
        raise _InvalidConfigError(f"{path}.mig-enabled is {_shown(enabled)}; it must be true or false")
    layout = _layout(entry.get("mig-devices"), f"{path}.mig-devices")
    if enabled and not layout:
        raise _InvalidConfigError(
            f"{path}.mig-devices is empty; list profiles, or set mig-enabled: false for whole cards"
        )
    if layout and not enabled:
        raise _InvalidConfigError(f"{path} has mig-devices, but mig-enabled is false; set only one of them")
    return MigConfigEntry(path, layout, devices, models)


def _devices(data: object, path: str) -> frozenset[int] | None:
    if data == _ALL:
        return None
    if not isinstance(data, list) or not data:
        raise _InvalidConfigError(f"{path} is {_shown(data)}; it must be {_ALL}, or a list of card indexes")
    for number in data:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MAX_INDEX:
            raise _InvalidConfigError(f"{path} has {_shown(number)}; an index must be a whole number from 0")
    if len(set(data)) < len(data):
        raise _InvalidConfigError(f"{path} names a card twice")
    return frozenset(data)


def _filter(data: object, path: str) -> frozenset[tuple[str, str]]:
    """mig-parted writes a model as device and vendor in one number, `0x233010DE`."""
    written = data if isinstance(data, list) else [data]
    found = [_FILTER.fullmatch(text) if isinstance(text, str) else None for text in written]
    models = frozenset((match[2].lower(), match[1].lower()) for match in found if match is not None)
    if not found or None in found:
        raise _InvalidConfigError(f'{path} is {_shown(data)}; it must be PCI ids such as "0x233010DE"')
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
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= mig.MAX_DEVICES:
            raise _InvalidConfigError(
                f"{path}.{name} is {_shown(number)}; it must be a whole number from 1 to {mig.MAX_DEVICES}"
            )
    return mig.canonical((name, number) for name, number in counted.items() if isinstance(number, int))


def _profile(name: object, path: str) -> str:
    if not isinstance(name, str) or not mig.is_profile(name):
        raise _InvalidConfigError(
            f"{path} has {_shown(name)}, which is not a MIG profile; use one such as 1g.10gb"
        )
    return name


def _mapping(data: object, path: str) -> Mapping[str, object]:
    if isinstance(data, dict) and all(isinstance(key, str) for key in data):
        return data
    raise _InvalidConfigError(f"{path or 'the annotation'} must be a mapping of names, not {_shown(data)}")


def _only(entry: Mapping[str, object], known: Iterable[str], path: str) -> None:
    if unknown := sorted(set(entry) - set(known)):
        where = f"{path}.{unknown[0]}" if path else unknown[0]
        raise _InvalidConfigError(f"{_unquoted(where)} is unknown; known fields: {', '.join(sorted(known))}")


def _shown(data: object) -> str:
    return "missing" if data is None else name_list.quoted(data if isinstance(data, str) else repr(data))


def _unquoted(text: str) -> str:
    return name_list.quoted(text)[1:-1]


def targets(config: MigConfig, cards: Sequence[GpuCard]) -> LayoutTargets | Refusal:
    """The desired layout of each named card. Every layout fits on its card."""
    try:
        return _targets(config, cards)
    except _InvalidConfigError as unreadable:
        return Refusal(f"annotation {ANNOTATION}", str(unreadable))


def _targets(config: MigConfig, cards: Sequence[GpuCard]) -> LayoutTargets:
    indexes = {card.index for card in cards}
    by_card: dict[int, tuple[str, Layout]] = {}
    for entry in config.entries:
        if missing := sorted((entry.devices or frozenset()) - indexes):
            raise _InvalidConfigError(f"{entry.path}.devices names card {missing[0]}; {_node_cards(indexes)}")
        for card in cards:
            layout = _layout_for(entry, card) if _applies_to(entry, card) else None
            if layout is None:
                continue
            if card.index in by_card:
                raise _InvalidConfigError(
                    f"{entry.path} and {by_card[card.index][0]} both name card {card.index}"
                )
            by_card[card.index] = (entry.path, layout)
    return {index: layout for index, (_, layout) in sorted(by_card.items())}


def _node_cards(indexes: Iterable[int]) -> str:
    return f"the node has {', '.join(str(index) for index in sorted(indexes)) or 'no cards'}"


def _applies_to(entry: MigConfigEntry, card: GpuCard) -> bool:
    named = entry.devices is None or card.index in entry.devices
    return named and (entry.models is None or (card.vendor, card.device) in entry.models)


def _layout_for(entry: MigConfigEntry, card: GpuCard) -> Layout | None:
    """The layout for this card; None if a named layout does not apply to its model."""
    if isinstance(entry.layout, str):
        return _by_name(entry, entry.layout, card) if card.kinds else None
    placed = mig.place(card.kinds, entry.layout)
    if isinstance(placed, Refusal):
        raise _InvalidConfigError(f"{entry.path}: card {card.index} ({card.product}): {placed}")
    return entry.layout


def _by_name(entry: MigConfigEntry, name: str, card: GpuCard) -> Layout:
    if name == _DISABLED:
        return mig.WHOLE
    layout = balanced(card.kinds) if name == _BALANCED else mig.fill(card.kinds, name.removeprefix(_FILLED))
    if isinstance(layout, Refusal):
        raise _InvalidConfigError(f"{entry.path}: card {card.index} ({card.product}): {layout}")
    return layout


def balanced(kinds: Sequence[MigProfile]) -> Layout | Refusal:
    """Two devices of one compute slice, one of two, and one of three if the model supports it."""
    usual: dict[int, str] = {}
    for kind in sorted(kinds, key=lambda kind: (kind.memory_mib, kind.memory_slices, "+" in kind.name)):
        usual.setdefault(kind.compute_slices, kind.name)
    layout = mig.canonical(
        (usual[slices], number) for slices, number in ((1, 2), (2, 1), (3, 1)) if slices in usual
    )
    placed = mig.place(kinds, layout)
    return placed if isinstance(placed, Refusal) else layout
