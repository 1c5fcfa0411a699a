"""Matches the cards of a node with its GPUDevice objects: new, changed, vanished and removable ones.

A card keeps its name as long as it stays in its slot. Missing information removes nothing: a card counts as
vanished only if a source that lists all cards of the node does not list it. A GPUDevice is not removed while
a pod holds a part of its card, or while the ledger could still allocate it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from croupier.core.cards.inventory import DiscoveredCards
from croupier.core.model import card_name as naming
from croupier.core.model.gpu_card import GpuCard

DeviceFate: TypeAlias = Literal["kept", "vanished", "removed"]


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """A GPUDevice that exists in the API server."""

    id: str
    index: int | None = None
    uuid: str = ""
    maybe_in_use: bool = True
    """The ledger may allocate it, a pod holds a part of it, or its occupancy is unknown."""
    vanished: bool = False
    removal_due: bool = False
    """It has been gone longer than the removal delay."""


@dataclass(frozen=True, slots=True)
class NamedCard:
    """A card that is present, with the name of its GPUDevice."""

    id: str
    card: GpuCard
    replaces: str = ""
    """The GPUDevice named by index that this new GPUDevice replaces; empty if there is none."""


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """An Event to record on a GPUDevice."""

    id: str
    reason: str
    note: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class DevicePlan:
    cards: tuple[NamedCard, ...] = ()
    """The cards that are present, sorted by name."""
    vanished: tuple[str, ...] = ()
    """The names of GPUDevices whose card is gone."""
    removed: tuple[str, ...] = ()
    """The names of GPUDevices to delete: their card is gone and no pod holds a part of it.

    GPUDevices that are in none of these three lists stay unchanged: no source reports on them now.
    """
    news: tuple[DeviceEvent, ...] = ()


@dataclass(slots=True)
class _Draft:
    placed: dict[str, NamedCard] = field(default_factory=dict)
    news: list[DeviceEvent] = field(default_factory=list)


def plan(node: str, discovered: DiscoveredCards, devices: Iterable[KnownDevice]) -> DevicePlan:
    """Decide for each GPUDevice of the node, and name the GPUDevices that are missing."""
    known = {device.id: device for device in devices}
    draft = _Draft()
    for card in discovered.cards:
        _place(node, card, known, draft)
    numbers = {placed.card.index for placed in draft.placed.values() if not naming.is_indexed(placed.id)}
    fates = {
        name: _fate(device, discovered.is_complete, heir=naming.is_indexed(name) and device.index in numbers)
        for name, device in sorted(known.items())
        if name not in draft.placed
    }
    return DevicePlan(
        cards=tuple(draft.placed[name] for name in sorted(draft.placed)),
        vanished=tuple(name for name, fate in fates.items() if fate == "vanished"),
        removed=tuple(name for name, fate in fates.items() if fate == "removed"),
        news=(*draft.news, *_removal_events(known, fates)),
    )


def _fate(device: KnownDevice, is_complete: bool, *, heir: bool) -> DeviceFate:
    """Decide about a GPUDevice whose card was not listed; `heir`: another GPUDevice replaces it."""
    if heir:
        return "kept" if device.maybe_in_use else "removed"
    if not is_complete and not device.vanished:
        return "kept"
    return "removed" if device.vanished and device.removal_due and not device.maybe_in_use else "vanished"


def _place(node: str, card: GpuCard, known: Mapping[str, KnownDevice], draft: _Draft) -> None:
    name = _name(node, card, known)
    if name in draft.placed:
        return  # a duplicate, which the inventory reports as a trouble
    before = known.get(name)
    if before is not None:
        draft.news += _change_events(before, card)
    draft.placed[name] = NamedCard(name, card, "" if before else _predecessor(node, card, known))


def _name(node: str, card: GpuCard, known: Mapping[str, KnownDevice]) -> str:
    if card.address:
        return naming.inventory_id(node, card.address)
    same = (dev for dev in known.values() if dev.index == card.index and not naming.is_indexed(dev.id))
    matching = sorted(same, key=lambda device: (device.vanished, device.id))
    return matching[0].id if matching else naming.indexed_id(node, card.index)


def _predecessor(node: str, card: GpuCard, known: Mapping[str, KnownDevice]) -> str:
    name = naming.indexed_id(node, card.index) if card.address else ""
    return name if name in known else ""


def _change_events(before: KnownDevice, card: GpuCard) -> Iterator[DeviceEvent]:
    if before.uuid and card.uuid and before.uuid != card.uuid:
        place = card.address or before.id
        note = f"the card at {place} was replaced: the UUID changed from {before.uuid} to {card.uuid}"
        yield DeviceEvent(before.id, "GPUCardReplaced", note, warning=True)
    if before.index is not None and before.index != card.index:
        note = f"the index of the card changed from {before.index} to {card.index}"
        yield DeviceEvent(before.id, "GPUCardRenumbered", note)
    if before.vanished:
        yield DeviceEvent(before.id, "GPUCardReturned", "the card is back in its node")


def _removal_events(
    known: Mapping[str, KnownDevice], fates: Mapping[str, DeviceFate]
) -> Iterator[DeviceEvent]:
    for name, fate in fates.items():
        if fate == "vanished" and not known[name].vanished:
            note = "the card is gone from its node; existing holds stay, and it is not allocated to more pods"
            yield DeviceEvent(name, "GPUCardVanished", note, warning=True)
        if fate == "removed":
            why = "the card is gone" if known[name].vanished else "another GPUDevice represents the card now"
            yield DeviceEvent(name, "GPUCardRemoved", f"{why}, and no pod holds a part of it")
