"""Which GPUDevice stands for which card of a node: which are new, changed, gone, and to be removed.

A card keeps its name for as long as it sits where it sits. Nothing is forgotten because somebody is silent:
only who lists the cards, all of them, can say that one is gone. And no GPUDevice is removed while somebody
holds something of its card, or might be given it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from croupier.core.cards import card as naming
from croupier.core.cards.inventory import Card, Sighting

Fate: TypeAlias = Literal["kept", "vanished", "removed"]


@dataclass(frozen=True, slots=True)
class Known:
    """A GPUDevice that stands in the API server."""

    id: str
    index: int | None = None
    uuid: str = ""
    given: bool = True
    """The ledger may give it to somebody, or somebody holds something of it, or nobody knows."""
    vanished: bool = False
    gone_long: bool = False
    """It has been gone long enough not to come back in a moment."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A card that is there, under the name of its GPUDevice."""

    id: str
    card: Card
    heir_of: str = ""
    """The GPUDevice that stood for it while only its number was known; this one is new."""


@dataclass(frozen=True, slots=True)
class News:
    """Something a person should hear of; `reason` is the Event's."""

    id: str
    reason: str
    note: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    cards: tuple[Placed, ...] = ()
    """Those that are there, by name."""
    vanished: tuple[str, ...] = ()
    """GPUDevices whose card is gone."""
    removed: tuple[str, ...] = ()
    """GPUDevices to be deleted: nothing is behind them, and nobody holds anything of them.

    Those in none of the three stay as they are: nobody tells anything of them now.
    """
    news: tuple[News, ...] = ()
    troubles: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    placed: dict[str, Placed] = field(default_factory=dict)
    news: list[News] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


def plan(node: str, sighting: Sighting, devices: Iterable[Known]) -> Plan:
    """What becomes of each GPUDevice of the node, and which are missing."""
    known = {one.id: one for one in devices}
    draft = _Draft()
    for card in sighting.cards:
        _place(node, card, known, draft)
    numbers = {one.card.index for one in draft.placed.values() if not naming.is_indexed(one.id)}
    fates = {
        name: _fate(one, sighting.whole, heir=naming.is_indexed(name) and one.index in numbers)
        for name, one in sorted(known.items())
        if name not in draft.placed
    }
    return Plan(
        cards=tuple(draft.placed[name] for name in sorted(draft.placed)),
        vanished=tuple(name for name, fate in fates.items() if fate == "vanished"),
        removed=tuple(name for name, fate in fates.items() if fate == "removed"),
        news=(*draft.news, *_endings(known, fates)),
        troubles=tuple(draft.troubles),
    )


def _fate(one: Known, whole: bool, *, heir: bool) -> Fate:
    """Of a GPUDevice whose card is not among those told of."""
    if heir:
        return "kept" if one.given else "removed"
    if not whole and not one.vanished:
        return "kept"
    return "removed" if one.vanished and one.gone_long and not one.given else "vanished"


def _place(node: str, card: Card, known: Mapping[str, Known], draft: _Draft) -> None:
    try:
        name = _name(node, card, known)
    except ValueError as too_long:
        draft.troubles.append(str(too_long))
        return
    if name in draft.placed:
        return  # told of twice, which is a trouble already
    before = known.get(name)
    if before is not None:
        draft.news += _changes(before, card)
    draft.placed[name] = Placed(name, card, "" if before else _forerunner(node, card, known))


def _name(node: str, card: Card, known: Mapping[str, Known]) -> str:
    if card.address:
        return naming.inventory_id(node, card.address)
    same = (one for one in known.values() if one.index == card.index and not naming.is_indexed(one.id))
    there = sorted(same, key=lambda one: (one.vanished, one.id))
    return there[0].id if there else naming.indexed_id(node, card.index)


def _forerunner(node: str, card: Card, known: Mapping[str, Known]) -> str:
    name = naming.indexed_id(node, card.index) if card.address else ""
    return name if name in known else ""


def _changes(before: Known, card: Card) -> Iterator[News]:
    if before.uuid and card.uuid and before.uuid != card.uuid:
        note = f"another card sits at {card.address or before.id}: {before.uuid} became {card.uuid}"
        yield News(before.id, "GPUCardReplaced", note, warning=True)
    if before.index is not None and before.index != card.index:
        note = f"the card that had index {before.index} has index {card.index} now"
        yield News(before.id, "GPUCardRenumbered", note)
    if before.vanished:
        yield News(before.id, "GPUCardReturned", "the card is there again")


def _endings(known: Mapping[str, Known], fates: Mapping[str, Fate]) -> Iterator[News]:
    for name, fate in fates.items():
        if fate == "vanished" and not known[name].vanished:
            note = "the card is gone from its node; who holds something of it keeps that, nobody gets more"
            yield News(name, "GPUCardVanished", note, warning=True)
        if fate == "removed":
            why = "the card is gone" if known[name].vanished else "the card has a name of its own now"
            yield News(name, "GPUCardRemoved", f"{why}, and nobody holds anything of it")
