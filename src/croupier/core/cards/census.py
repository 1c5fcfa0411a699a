"""Matches the cards of a node with its GPUDevice objects: new, changed, vanished and removable ones.

A card keeps its name as long as it stays in its slot. Missing information removes nothing: a card counts as
vanished only if a source that lists all cards of the node does not list it. A GPUDevice is not removed while
a pod holds a part of its card, or while the ledger could still allocate it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from croupier.core.cards import card as naming
from croupier.core.cards.inventory import Card, Sighting

Fate: TypeAlias = Literal["kept", "vanished", "removed"]


@dataclass(frozen=True, slots=True)
class Known:
    """A GPUDevice that exists in the API server."""

    id: str
    index: int | None = None
    uuid: str = ""
    given: bool = True
    """The ledger may allocate it, a pod holds a part of it, or its occupancy is unknown."""
    vanished: bool = False
    gone_long: bool = False
    """It has been gone longer than the removal delay."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A card that is present, with the name of its GPUDevice."""

    id: str
    card: Card
    heir_of: str = ""
    """The GPUDevice named by index that this new GPUDevice replaces; empty if there is none."""


@dataclass(frozen=True, slots=True)
class News:
    """An Event to record on a GPUDevice."""

    id: str
    reason: str
    note: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    cards: tuple[Placed, ...] = ()
    """The cards that are present, sorted by name."""
    vanished: tuple[str, ...] = ()
    """The names of GPUDevices whose card is gone."""
    removed: tuple[str, ...] = ()
    """The names of GPUDevices to delete: their card is gone and no pod holds a part of it.

    GPUDevices that are in none of these three lists stay unchanged: no source reports on them now.
    """
    news: tuple[News, ...] = ()
    troubles: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    placed: dict[str, Placed] = field(default_factory=dict)
    news: list[News] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


def plan(node: str, sighting: Sighting, devices: Iterable[Known]) -> Plan:
    """Decide for each GPUDevice of the node, and name the GPUDevices that are missing."""
    known = {device.id: device for device in devices}
    draft = _Draft()
    for card in sighting.cards:
        _place(node, card, known, draft)
    numbers = {placed.card.index for placed in draft.placed.values() if not naming.is_indexed(placed.id)}
    fates = {
        name: _fate(device, sighting.whole, heir=naming.is_indexed(name) and device.index in numbers)
        for name, device in sorted(known.items())
        if name not in draft.placed
    }
    return Plan(
        cards=tuple(draft.placed[name] for name in sorted(draft.placed)),
        vanished=tuple(name for name, fate in fates.items() if fate == "vanished"),
        removed=tuple(name for name, fate in fates.items() if fate == "removed"),
        news=(*draft.news, *_endings(known, fates)),
        troubles=tuple(draft.troubles),
    )


def _fate(device: Known, whole: bool, *, heir: bool) -> Fate:
    """Decide about a GPUDevice whose card was not listed; `heir`: another GPUDevice replaces it."""
    if heir:
        return "kept" if device.given else "removed"
    if not whole and not device.vanished:
        return "kept"
    return "removed" if device.vanished and device.gone_long and not device.given else "vanished"


def _place(node: str, card: Card, known: Mapping[str, Known], draft: _Draft) -> None:
    try:
        name = _name(node, card, known)
    except ValueError as too_long:
        draft.troubles.append(str(too_long))
        return
    if name in draft.placed:
        return  # a duplicate, which the inventory reports as a trouble
    before = known.get(name)
    if before is not None:
        draft.news += _changes(before, card)
    draft.placed[name] = Placed(name, card, "" if before else _forerunner(node, card, known))


def _name(node: str, card: Card, known: Mapping[str, Known]) -> str:
    if card.address:
        return naming.inventory_id(node, card.address)
    same = (dev for dev in known.values() if dev.index == card.index and not naming.is_indexed(dev.id))
    matching = sorted(same, key=lambda device: (device.vanished, device.id))
    return matching[0].id if matching else naming.indexed_id(node, card.index)


def _forerunner(node: str, card: Card, known: Mapping[str, Known]) -> str:
    name = naming.indexed_id(node, card.index) if card.address else ""
    return name if name in known else ""


def _changes(before: Known, card: Card) -> Iterator[News]:
    if before.uuid and card.uuid and before.uuid != card.uuid:
        place = card.address or before.id
        note = f"the card at {place} was replaced: the UUID changed from {before.uuid} to {card.uuid}"
        yield News(before.id, "GPUCardReplaced", note, warning=True)
    if before.index is not None and before.index != card.index:
        note = f"the index of the card changed from {before.index} to {card.index}"
        yield News(before.id, "GPUCardRenumbered", note)
    if before.vanished:
        yield News(before.id, "GPUCardReturned", "the card is back in its node")


def _endings(known: Mapping[str, Known], fates: Mapping[str, Fate]) -> Iterator[News]:
    for name, fate in fates.items():
        if fate == "vanished" and not known[name].vanished:
            note = "the card is gone from its node; existing holds stay, and it is not allocated to more pods"
            yield News(name, "GPUCardVanished", note, warning=True)
        if fate == "removed":
            why = "the card is gone" if known[name].vanished else "another GPUDevice represents the card now"
            yield News(name, "GPUCardRemoved", f"{why}, and no pod holds a part of it")
