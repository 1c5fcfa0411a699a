"""The cards of a node, from what the node side reports.

Where an inventory of the node exists, it is the truth. A card that is about to change, or that nobody
looks after, is withheld: those who hold something of it keep that, and nobody else gets any. Only
then may it be re-cut or moved, so that nothing is given twice.

Where no inventory exists, the allocatable of the usual device plugin is the truth: so many cards named
by their index, so many MIG devices on made-up cards. Such names are only ways of counting. So when the
plugin withdraws one, the one that goes is one nobody holds; when an inventory appears, core/ledgers/refit.py
moves the holders over to the real names.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from croupier.core.cards import card as naming
from croupier.core.ledgers.ledger import MOST_CARDS, Card, Part, Slot
from croupier.core.pods import request

MOST_SLOTS: Final = 8
"""Slots one card can have, and memory slices."""
MOST_INDEX: Final = 255
_MADE_UP: Final = "-mig-"

Sharing: TypeAlias = Literal["Exclusive", "MIG", "TimeSlice", "MPS"]

_GIGABYTES: Final = re.compile(r"([1-7])g\.([0-9]+)gb")
_MEMORY_SLICES: Final = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""Of the profiles of an A100 by compute slices; used where the card itself tells nothing."""


@dataclass(frozen=True, slots=True)
class Device:
    """One card as an inventory of the node tells of it."""

    id: str
    index: int | None = None
    pool: str = ""
    faulted: bool = False
    ignored: bool = False
    """It gives nothing to anybody."""
    withheld: str = ""
    """Why it is given to nobody for now, as the part of a sentence; empty if it is."""
    fits: Mapping[str, int] = field(default_factory=dict)
    """MIG profile to how many of it fit on the empty card."""
    cut: tuple[Slot, ...] | None = None
    """The MIG devices it is cut into, none if it is whole; None where nobody tells."""
    ahead: "Pool | None" = None
    """How it is shared while it is ahead of its pool, which changes card by card."""


@dataclass(frozen=True, slots=True)
class Pool:
    """How the cards of a pool are shared."""

    sharing: Sharing
    slices: int = 8
    profile: str = ""
    """Cut every card into as many of it as fit."""
    layout: tuple[tuple[str, int], ...] = ()
    """Or into so many of these."""
    withheld: str = ""
    """Why its cards are given to nobody for now; empty if they are."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything known of the cards of one node. `allocatable` counts when there is no device at all."""

    node: str
    present: bool = True
    """The Node object is there."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    pools: Mapping[str, Pool] = field(default_factory=dict)
    silent: bool = False
    """Nobody looks after the cards: the agent of the node is not heard any more."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The cards in the order of the ledger, and what of the report could not be taken."""

    cards: tuple[Card, ...] = ()
    troubles: tuple[str, ...] = ()


def count(report: Report, in_use: Iterable[Part] = ()) -> Counted:
    """The cards the node reports; of those that are only counted, the ones `in_use` are kept first."""
    try:
        used = tuple(in_use)
        cards = _listed(report, used) if report.devices else _allocatable(report, used)
    except ValueError as error:  # a name that no card can have
        return Counted((), (f"node {report.node}: {error}",))
    if not report.present or report.silent:
        cards = [replace(card, healthy=False) for card in cards]
    cards.sort(key=lambda card: (card.index, card.id))
    if len(cards) <= MOST_CARDS:
        return Counted(tuple(cards))
    trouble = f"node {report.node} reports more than {MOST_CARDS} cards; those beyond are left out"
    return Counted(tuple(cards[:MOST_CARDS]), (trouble,))


def _listed(report: Report, in_use: Collection[Part]) -> list[Card]:
    """The cards of an inventory; one whose index is not known gets the next that nobody has."""
    devices = _distinct(report.devices)
    taken = {device.index for device in devices}
    spare = (number for number in range(MOST_INDEX + 1) if number not in taken)
    cards = []
    for device in sorted(devices, key=lambda device: device.id):
        index = device.index if device.index is not None and device.index <= MOST_INDEX else next(spare, None)
        if index is not None:
            cards.append(_card(device, index, report.pools))
    if any(device.cut is not None for device in report.devices):
        return cards
    return _beside_plugin(report, cards, in_use)


def _distinct(devices: Iterable[Device]) -> list[Device]:
    """Without those ignored, and without what is named by its index only beside the same card's real name."""
    counted = {device.id: device for device in devices if not device.ignored}
    named = {device.index for device in counted.values() if not naming.is_indexed(device.id)} - {None}
    return [one for one in counted.values() if one.index not in named or not naming.is_indexed(one.id)]


def _card(device: Device, index: int, pools: Mapping[str, Pool]) -> Card:
    healthy = not device.faulted and not device.withheld
    card = Card(device.id, index, pool=device.pool, healthy=healthy)
    if not device.pool:
        return _sliced(card, device.cut) if device.cut else card
    pool = pools.get(device.pool)
    if pool is None:  # nobody knows how the pool shares its cards, so nobody can be given any
        return replace(card, healthy=False)
    shared = _shared(card, device, device.ahead or pool)
    return replace(shared, healthy=False) if pool.withheld else shared


def _shared(card: Card, device: Device, pool: Pool) -> Card:
    if pool.sharing == "MIG":
        return _in_slots(card, device, pool)
    whole = replace(card, healthy=card.healthy and not device.cut)  # one that is cut cannot be given whole
    match pool.sharing:
        case "MPS":
            return whole
        case "Exclusive":
            return replace(whole, mode="Exclusive")
        case "TimeSlice":
            return replace(whole, mode="TimeSlice", capacity=pool.slices)


def _in_slots(card: Card, device: Device, pool: Pool) -> Card:
    """As it is cut, if that is what the pool says; as the pool says, where nobody tells how it is cut."""
    if device.cut is None:
        return _sliced(card, _cut(device, pool))
    right = _is_cut(device.cut, pool, device.fits)
    return _sliced(card if right else replace(card, healthy=False), device.cut)


def _sliced(card: Card, slots: tuple[Slot, ...]) -> Card:
    """A card in these slots; one cut in a way that cannot be gives nothing."""
    ordered = sorted(slots, key=lambda slot: slot.start)
    apart = all(one.start + one.size <= other.start for one, other in pairwise(ordered))
    kept = tuple(ordered) if apart and all(_is_inside(slot) for slot in slots) else ()
    return replace(card, mode="MIG", slots=kept, healthy=card.healthy and bool(kept))


def _is_inside(slot: Slot) -> bool:
    return slot.start >= 0 and slot.size >= 1 and slot.start + slot.size <= MOST_SLOTS


def _is_cut(slots: Iterable[Slot], pool: Pool, fits: Mapping[str, int]) -> bool:
    """The card is cut as the pool says; into as many as it is, where nobody tells how many would fit."""
    there = Counter(slot.profile for slot in slots)
    if pool.layout:
        return there == Counter(dict(pool.layout))
    return there == Counter({pool.profile: fits.get(pool.profile) or max(1, there[pool.profile])})


def _beside_plugin(report: Report, cards: list[Card], in_use: Collection[Part]) -> list[Card]:
    """Where nobody tells how cards are cut, the plugin's MIG devices are counted as on a plain node.

    What it cut it does not offer whole: only as many cards as it does are given.
    """
    sliced = _counted_slots(report, in_use, first=max((card.index for card in cards), default=-1) + 1)
    if not sliced:
        return cards
    used = {part.card for part in in_use}
    loose = sorted((card for card in cards if not card.pool), key=lambda card: card.id not in used)
    offered = {card.id for card in loose[: report.allocatable.get(request.GPU, 0)]}
    whole = [card if card.pool or card.id in offered else replace(card, healthy=False) for card in cards]
    return [*whole, *sliced]


def _cut(device: Device, pool: Pool) -> tuple[Slot, ...]:
    """What the pool cuts the card into, largest first; nothing when it does not fit or is not known."""
    layout = pool.layout or ((pool.profile, device.fits.get(pool.profile, 0)),)
    pieces = [(_size(profile, device.fits), profile) for profile, number in layout for _ in range(number)]
    free = set(range(MOST_SLOTS))
    slots = []
    for size, profile in sorted(pieces, key=lambda piece: (-piece[0], piece[1])):
        start = _start(free, size)
        if start is None:
            return ()
        free -= set(range(start, start + size))
        slots.append(Slot(f"{profile}-{start}", profile, start, size))
    return tuple(sorted(slots, key=lambda slot: slot.start))


def _size(profile: str, fits: Iterable[str]) -> int:
    """Memory slices of a profile: its memory in units of the smallest the card can be cut into."""
    found = _GIGABYTES.search(profile)
    if found is None:
        return 1
    known = [int(match[2]) for other in fits if (match := _GIGABYTES.search(other)) and int(match[2])]
    slices = round(int(found[2]) / min(known)) if known else _MEMORY_SLICES.get(int(found[1]), 1)
    return min(max(slices, 1), MOST_SLOTS)


def _start(free: Collection[int], size: int) -> int | None:
    """Where a piece begins: a multiple of its size in powers of two, as MIG places them."""
    step = 1 << (size - 1).bit_length()
    starts = (*range(0, MOST_SLOTS, step), *range(MOST_SLOTS))
    fitting = (start for start in starts if all(one in free for one in range(start, start + size)))
    return next(fitting, None)


def _allocatable(report: Report, in_use: Collection[Part]) -> list[Card]:
    """Cards and MIG devices that are only counted."""
    known = indexed(report.node)
    used = {known[part.card] for part in in_use if part.card in known}
    numbers = _numbers(report.allocatable.get(request.GPU, 0), used)
    cards = [Card(naming.indexed_id(report.node, number), number) for number in numbers]
    first = max((card.index for card in cards), default=-1) + 1
    return [*cards, *_counted_slots(report, in_use, first=first)]


def _counted_slots(report: Report, in_use: Collection[Part], *, first: int) -> list[Card]:
    """Made-up cards for the MIG devices the plugin offers, numbered from `first` on."""
    cards: list[Card] = []
    for resource, amount in sorted(report.allocatable.items()):
        if (profile := request.profile(resource)) is not None:
            index = max((card.index for card in cards), default=first - 1) + 1
            cards += _made_up(report.node, profile, amount, in_use=in_use, first=index)
    return cards


def _numbers(amount: int, used: Iterable[int]) -> list[int]:
    """So many numbers: first those that are used, then the lowest."""
    bounded = min(max(amount, 0), MOST_INDEX + 1)
    chosen = sorted(used)[:bounded]
    chosen += [number for number in range(MOST_INDEX + 1) if number not in chosen][: bounded - len(chosen)]
    return sorted(chosen)


def _made_up(node: str, profile: str, amount: int, *, in_use: Iterable[Part], first: int) -> list[Card]:
    """Cards that carry so many MIG devices of a profile, eight each; nobody knows the real ones."""
    ids = [made_up_id(node, profile, number) for number in range(MOST_CARDS)]
    places = {(ids[n // MOST_SLOTS], _slot_id(profile, n)): n for n in range(MOST_CARDS * MOST_SLOTS)}
    held = ((part.card, slot) for part in in_use for slot in part.slots)
    numbers = _numbers(amount, {places[place] for place in held if place in places})
    slots: dict[int, list[Slot]] = {}
    for number in numbers:
        start = number % MOST_SLOTS
        slots.setdefault(number // MOST_SLOTS, []).append(Slot(_slot_id(profile, number), profile, start, 1))
    return [
        Card(ids[number], first + place, mode="MIG", slots=tuple(slots[number]))
        for place, number in enumerate(sorted(slots))
    ]


def _slot_id(profile: str, number: int) -> str:
    return f"{profile}-{number % MOST_SLOTS}"


def made_up_id(node: str, profile: str, number: int) -> str:
    """`node-1-mig-1g.10gb-0`: a card that exists to count MIG devices."""
    name = f"{node}{_MADE_UP}{re.sub(r'[^a-z0-9.]+', '-', profile)}-{number}"
    if len(name) > naming.NAME_LIMIT:
        raise ValueError(f"its name is too long for cards named after it: {naming.NAME_LIMIT} characters")
    return name


def indexed(node: str) -> Mapping[str, int]:
    """The names cards have by their index alone; none on a node whose name is too long for any."""
    try:
        return {naming.indexed_id(node, number): number for number in range(MOST_CARDS)}
    except ValueError:
        return {}


def is_made_up(node: str, card_id: str) -> bool:
    return card_id.startswith(f"{node}{_MADE_UP}")
