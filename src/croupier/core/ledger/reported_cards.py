"""The cards of a node, built from the node's report.

If the node has an inventory, the inventory is authoritative. A card that is about to change, or whose node
agent is silent, is withheld: its holders keep it and it gets no new ones. Only a withheld card may be
repartitioned or moved to another pool, so that nothing is allocated twice.

Without an inventory the allocatable resources of the NVIDIA device plugin are authoritative: cards are named
by their index, MIG devices are counted on placeholder cards. These names only serve for counting. If the
plugin reports fewer devices, unused ones are removed first, then those that wait for a pod; when an inventory
appears, core/ledger/sync_cards.py moves the holders to the real names.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from croupier.core.model import card_name as naming
from croupier.core.model import sharing as pool_sharing
from croupier.core.model.card import MAX_CARDS, CardGrant, LedgerCard, MigSlot
from croupier.core.model.sharing import Sharing
from croupier.core.model.withheld import Withheld
from croupier.core.pods import request_parser

MAX_SLOTS: Final = 8
"""Maximum number of slots, and of memory slices, of one card."""
MAX_INDEX: Final = 255
_PLACEHOLDER: Final = "mig-"

_FAULTED: Final = Withheld("Unhealthy", "it is faulted")
_SILENT: Final = Withheld("Unhealthy", "the agent of its node is silent")
_NO_NODE: Final = Withheld("Unhealthy", "its node does not exist")
_OTHER_PARTITIONS: Final = Withheld("Changing", "its partitions are not those of its pool yet")
_NO_PARTITIONS: Final = Withheld("Changing", "it has no usable MIG devices yet")
_NOT_OFFERED: Final = Withheld("Unhealthy", "the device plugin of its node does not offer it whole")

_GIGABYTES: Final = re.compile(r"([1-7])g\.([0-9]+)gb")
_MEMORY_SLICES: Final = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""Memory slices of A100 profiles by compute slices; used if the card reports no profiles."""


@dataclass(frozen=True, slots=True)
class ReportedCard:
    """One card of a node's inventory."""

    id: str
    index: int | None = None
    pool: str = ""
    faulted: bool = False
    unmanaged: bool = False
    """A label of the node excludes the card: the ledger does not list it."""
    withheld: Withheld | None = None
    """Why the card gets no new holders, apart from faults; None if it is not withheld."""
    vanished: bool = False
    """The card is gone from its node, but its record is kept while it has holders."""
    fits: Mapping[str, int] = field(default_factory=dict)
    """How many devices of each MIG profile fit on the empty card."""
    cut: tuple[MigSlot, ...] | None = None
    """The MIG devices of the card, empty if it is not partitioned; None if unknown."""
    ahead: Sharing | None = None
    """The new sharing of a card that already changed, while its pool changes card by card."""


@dataclass(frozen=True, slots=True)
class ReportedPool:
    sharing: Sharing
    withheld: Withheld | None = None
    """Why the cards of the pool get no new holders for now; None if they are not withheld."""
    smallest: int | None = None
    """The smallest share of a card; None for that of cards without a pool."""


@dataclass(frozen=True, slots=True)
class NodeCardReport:
    """All known cards of one node. `allocatable` is used only if `devices` is empty."""

    node: str
    present: bool = True
    """The Node object exists."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[ReportedCard, ...] = ()
    pools: Mapping[str, ReportedPool] = field(default_factory=dict)
    silent: bool = False
    """The node agent sends no heartbeats any more."""
    expected: bool = False
    """The node has cards, according to its inventory or its labels, also if none is reported yet."""
    smallest: int = 1
    """The smallest share of a card without a pool; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class CountedCards:
    """The cards in the order of the ledger, and the problems of the report."""

    cards: tuple[LedgerCard, ...] = ()
    troubles: tuple[str, ...] = ()


def from_report(report: NodeCardReport, in_use: Iterable[CardGrant] = ()) -> CountedCards:
    """The cards the node reports; of those that are only counted, the ones `in_use` are kept first."""
    used = tuple(in_use)
    cards = _from_inventory(report, used) if report.devices else _from_allocatable(report, used)
    if not report.present or report.silent:
        gone = _SILENT if report.present else _NO_NODE
        cards = [_withheld(card, gone) for card in cards]
    cards = [replace(card, smallest=_smallest(card, report)) for card in cards]
    cards.sort(key=LedgerCard.order)
    if len(cards) <= MAX_CARDS:
        return CountedCards(tuple(cards))
    trouble = f"node {report.node} reports more than {MAX_CARDS} cards; the others are ignored"
    first = sorted(cards, key=lambda card: (card.is_retired, *card.order()))[:MAX_CARDS]
    return CountedCards(tuple(sorted(first, key=LedgerCard.order)), (trouble,))


def _smallest(card: LedgerCard, report: NodeCardReport) -> int:
    if card.mode != "Percent":
        return 1
    pool = report.pools.get(card.pool)
    return report.smallest if pool is None or pool.smallest is None else pool.smallest


def present_cards(report: NodeCardReport, in_use: Iterable[CardGrant]) -> frozenset[str]:
    """The cards that exist on the node and are not retired, healthy or not."""
    vanished = {device.id for device in report.devices if device.vanished}
    listed = from_report(report, in_use).cards
    return frozenset(card.id for card in listed if not card.is_retired) - vanished


def are_expected(report: NodeCardReport) -> bool:
    """Whether the node has cards, so that its ledger will have them."""
    unreported = report.expected and not report.devices
    return report.present and (unreported or bool(from_report(report).cards))


def _from_inventory(report: NodeCardReport, in_use: Collection[CardGrant]) -> list[LedgerCard]:
    """The cards of an inventory; a card without a known index gets the next unused index."""
    devices = _distinct(report.devices)
    taken = {device.index for device in devices}
    spare = (number for number in range(MAX_INDEX + 1) if number not in taken)
    cards = []
    for device in sorted(devices, key=lambda device: device.id):
        index = device.index if device.index is not None and device.index <= MAX_INDEX else next(spare, None)
        if index is not None:
            cards.append(_card(device, index, report.pools))
    if any(device.cut is not None for device in report.devices):
        return cards
    return _with_plugin_slots(report, cards, in_use)


def _distinct(devices: Iterable[ReportedCard]) -> list[ReportedCard]:
    """Without unmanaged devices, and without index names of cards that also have their real name."""
    counted = {device.id: device for device in devices if not device.unmanaged}
    named = {device.index for device in counted.values() if not naming.is_indexed(device.id)} - {None}
    return [
        device for device in counted.values() if device.index not in named or not naming.is_indexed(device.id)
    ]


def _card(device: ReportedCard, index: int, pools: Mapping[str, ReportedPool]) -> LedgerCard:
    card = LedgerCard(device.id, index, pool=device.pool)
    if why := _obstacle(device):
        card = _withheld(card, why)
    if not device.pool:
        return _with_slots(card, device.cut) if device.cut else card
    pool = pools.get(device.pool)
    if pool is None:  # the sharing of an unknown pool is unknown, so its cards cannot be allocated
        return _withheld(card, Withheld("Unhealthy", f"its pool {device.pool} does not exist"))
    shared = _shared(card, device, device.ahead or pool.sharing)
    return _withheld(shared, pool.withheld) if pool.withheld else shared


def _obstacle(device: ReportedCard) -> Withheld | None:
    """What a person did to the card comes before a fault, and a fault before a change."""
    if not device.faulted or (device.withheld is not None and device.withheld.is_by_person):
        return device.withheld
    return _FAULTED


def _withheld(card: LedgerCard, why: Withheld) -> LedgerCard:
    """The card without new holders; the first reason stays."""
    return replace(card, healthy=False, withheld=card.withheld or why)


def _shared(card: LedgerCard, device: ReportedCard, sharing: Sharing) -> LedgerCard:
    if sharing.mode == "MIG":
        return _mig_card(card, device, sharing)
    whole = _withheld(card, _OTHER_PARTITIONS) if device.cut else card
    match sharing.mode:
        case "MPS":
            return whole
        case "Exclusive":
            return replace(whole, mode="Exclusive")
        case "TimeSlice":
            return replace(whole, mode="TimeSlice", capacity=sharing.slices)


def _mig_card(card: LedgerCard, device: ReportedCard, sharing: Sharing) -> LedgerCard:
    """A MIG card, unhealthy if its slots do not match the pool; the pool's layout if they are unknown."""
    if device.cut is None:
        return _with_slots(card, planned_slots(sharing, device.fits))
    profiles = Counter(slot.profile for slot in device.cut)
    right = pool_sharing.is_partitioned_as(profiles, sharing, device.fits)
    return _with_slots(card if right else _withheld(card, _OTHER_PARTITIONS), device.cut)


def _with_slots(card: LedgerCard, slots: tuple[MigSlot, ...]) -> LedgerCard:
    """A MIG card with these slots; it is unhealthy if the slots are impossible."""
    ordered = sorted(slots, key=lambda slot: slot.start)
    apart = all(slot.start + slot.size <= following.start for slot, following in pairwise(ordered))
    kept = tuple(ordered) if apart and all(_is_within_card(slot) for slot in slots) else ()
    partitioned = replace(card, mode="MIG", slots=kept)
    return partitioned if kept else _withheld(partitioned, _NO_PARTITIONS)


def _is_within_card(slot: MigSlot) -> bool:
    return slot.start >= 0 and slot.size >= 1 and slot.start + slot.size <= MAX_SLOTS


def _with_plugin_slots(
    report: NodeCardReport, cards: list[LedgerCard], in_use: Collection[CardGrant]
) -> list[LedgerCard]:
    """Add the MIG devices of the device plugin if the inventory does not report partitioning.

    The plugin does not offer partitioned cards as whole, so only as many cards as it offers are healthy.
    """
    sliced = _counted_slots(report, in_use, first=max((card.index for card in cards), default=-1) + 1)
    if not sliced:
        return cards
    used = {part.card for part in in_use}
    loose = sorted((card for card in cards if not card.pool), key=lambda card: card.id not in used)
    offered = {card.id for card in loose[: report.allocatable.get(request_parser.GPU, 0)]}
    whole = [card if card.pool or card.id in offered else _withheld(card, _NOT_OFFERED) for card in cards]
    return [*whole, *sliced]


def planned_slots(sharing: Sharing, fits: Mapping[str, int]) -> tuple[MigSlot, ...]:
    """The pool's MIG layout on a card, largest devices first; empty if it does not fit or is unknown.

    `fits` is how many devices of each profile fit on the empty card.
    """
    layout = sharing.layout or ((sharing.profile, fits.get(sharing.profile, 0)),)
    pieces = [(_size(profile, fits), profile) for profile, number in layout for _ in range(number)]
    free = set(range(MAX_SLOTS))
    slots = []
    for size, profile in sorted(pieces, key=lambda piece: (-piece[0], piece[1])):
        start = _first_fit(free, size)
        if start is None:
            return ()
        free -= set(range(start, start + size))
        slots.append(MigSlot(f"{profile}-{start}", profile, start, size))
    return tuple(sorted(slots, key=lambda slot: slot.start))


def _size(profile: str, fits: Iterable[str]) -> int:
    """Memory slices of a profile: its memory in units of the card's smallest profile."""
    size = _GIGABYTES.search(profile)
    if size is None:
        return 1
    known = [int(match[2]) for other in fits if (match := _GIGABYTES.search(other)) and int(match[2])]
    slices = round(int(size[2]) / min(known)) if known else _MEMORY_SLICES.get(int(size[1]), 1)
    return min(max(slices, 1), MAX_SLOTS)


def _first_fit(free: Collection[int], size: int) -> int | None:
    """First free start of a device; MIG aligns devices to their size rounded up to a power of two."""
    step = 1 << (size - 1).bit_length()
    starts = (*range(0, MAX_SLOTS, step), *range(MAX_SLOTS))
    fitting = (start for start in starts if all(place in free for place in range(start, start + size)))
    return next(fitting, None)


def _from_allocatable(report: NodeCardReport, in_use: Collection[CardGrant]) -> list[LedgerCard]:
    """Cards and MIG devices of a node without inventory."""
    known = indexed_names(report.node)
    used = [known[part.card] for part in in_use if part.card in known]
    numbers = _numbers(report.allocatable.get(request_parser.GPU, 0), used)
    cards = [LedgerCard(naming.indexed_id(report.node, number), number) for number in numbers]
    first = max((card.index for card in cards), default=-1) + 1
    return [*cards, *_counted_slots(report, in_use, first=first)]


def _counted_slots(report: NodeCardReport, in_use: Collection[CardGrant], *, first: int) -> list[LedgerCard]:
    """Placeholder cards for the MIG devices of the device plugin, numbered from `first` on."""
    cards: list[LedgerCard] = []
    for resource, amount in sorted(report.allocatable.items()):
        if (profile := request_parser.profile(resource)) is not None:
            index = max((card.index for card in cards), default=first - 1) + 1
            cards += _placeholders(report.node, profile, amount, in_use=in_use, first=index)
    return cards


def _numbers(amount: int, used: Iterable[int]) -> list[int]:
    """`amount` numbers: used ones first, in their order, then the lowest."""
    bounded = min(max(amount, 0), MAX_INDEX + 1)
    chosen = list(dict.fromkeys(used))[:bounded]
    chosen += [number for number in range(MAX_INDEX + 1) if number not in chosen][: bounded - len(chosen)]
    return sorted(chosen)


def _placeholders(
    node: str, profile: str, amount: int, *, in_use: Iterable[CardGrant], first: int
) -> list[LedgerCard]:
    """Placeholder cards with `amount` MIG devices of a profile, eight per card."""
    ids = [placeholder_id(node, profile, number) for number in range(MAX_CARDS)]
    places = {(ids[n // MAX_SLOTS], _slot_id(profile, n)): n for n in range(MAX_CARDS * MAX_SLOTS)}
    held = ((part.card, slot) for part in in_use for slot in part.slots)
    numbers = _numbers(amount, [places[place] for place in held if place in places])
    slots: dict[int, list[MigSlot]] = {}
    for number in numbers:
        start = number % MAX_SLOTS
        slots.setdefault(number // MAX_SLOTS, []).append(
            MigSlot(_slot_id(profile, number), profile, start, 1)
        )
    return [
        LedgerCard(ids[number], first + place, mode="MIG", slots=tuple(slots[number]))
        for place, number in enumerate(sorted(slots))
    ]


def _slot_id(profile: str, number: int) -> str:
    return f"{profile}-{number % MAX_SLOTS}"


def placeholder_id(node: str, profile: str, number: int) -> str:
    """`node-1-mig-1g.10gb-0`: the name of a card that only counts MIG devices."""
    return naming.with_suffix(node, f"{_PLACEHOLDER}{re.sub(r'[^a-z0-9.]+', '-', profile)}-{number}")


def indexed_names(node: str) -> Mapping[str, int]:
    """Card names that are made of the index."""
    return {naming.indexed_id(node, number): number for number in range(MAX_CARDS)}


def is_placeholder(node: str, card_id: str) -> bool:
    return card_id.startswith(tuple(f"{prefix}{_PLACEHOLDER}" for prefix in naming.prefixes(node)))
