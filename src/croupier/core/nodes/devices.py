"""Which device plugins a node needs, and which devices each of them lists.

The kubelet counts devices and knows no shares, so a share is served as units: a hundred a card in
percent, one a time slice. A device is named after its card, so that a name alone tells what it is
part of, whichever resource lists it: the kubelet does not exclude across resources, we do.

Devices carry no NUMA topology on purpose: a kubelet that aligns devices takes those of one NUMA node
without asking, and the ledger has promised particular cards.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from croupier.core.cards import mig
from croupier.core.ledgers.capacity import Sharing
from croupier.core.pods import request
from croupier.core.pods.want import WHOLE

BETWEEN: Final = "::"
"""Between a card's name and what part of it the device is; no name of a card contains it."""


@dataclass(frozen=True, slots=True)
class CardSlot:
    """One MIG device a card is cut into."""

    id: str
    """Profile and first memory slice: `1g.10gb-0`."""
    profile: str
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Membership:
    """The pool a card serves, and how that pool shares its cards."""

    name: str
    sharing: Sharing
    slices: int = 8


@dataclass(frozen=True, slots=True)
class NodeCard:
    """One card as the node side serves it."""

    id: str
    """The inventoryID."""
    index: int
    uuid: str = ""
    memory_mib: int = 0
    healthy: bool = True
    changing: bool = False
    """It is being cut anew, or is about to be: nothing of it may be given."""
    mig_enabled: bool = False
    """MIG mode is on: the card as a whole is of no use, cut or not."""
    slots: tuple[CardSlot, ...] = ()
    pool: Membership | None = None
    kept: frozenset[str] | None = None
    """Only these devices of it may be given: those that pods have, of a card that nobody new shall get."""

    @property
    def capacity(self) -> int:
        """What its shares come to: time slices in a pool that shares by time, percent everywhere else."""
        return self.pool.slices if self.pool is not None and self.pool.sharing == "TimeSlice" else WHOLE


@dataclass(frozen=True, slots=True)
class Device:
    id: str
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node serves: every resource with its devices, and the cards they are parts of."""

    resources: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    cards: Mapping[str, NodeCard] = field(default_factory=dict)

    def healthy(self) -> dict[str, int]:
        """Resource to how many devices of it can be given."""
        return {name: sum(one.healthy for one in found) for name, found in self.resources.items()}


@dataclass(frozen=True, slots=True)
class Unit:
    """What a device's name says: a card, a percent or time slice of it, or one of its MIG devices."""

    card: str
    part: str = ""
    """Empty for the whole card; `p07`, `s3`, or the id of a slot."""

    @property
    def share(self) -> int:
        """Of what a card's shares come to: one percent or slice, all of a whole card, nothing for a slot."""
        return WHOLE if not self.part else int(not self.slot)

    @property
    def is_percent(self) -> bool:
        return self.part.startswith("p")

    @property
    def slot(self) -> str:
        """The id of the MIG device, empty for everything else."""
        counted = not self.part or (self.part[0] in "ps" and self.part[1:].isdigit())
        return "" if counted else self.part


@lru_cache(maxsize=16384)  # a node has a few thousand devices, and each is read at every admission
def unit(device: str) -> Unit:
    """What `node-1-0000-65-00-0::p07` is part of."""
    card, _, part = device.partition(BETWEEN)
    return Unit(card, part)


def offer(cards: Iterable[NodeCard], before: Collection[str] = ()) -> Offer:
    """What to serve now. What was served `before` stays, with no devices if there are none any more.

    Its plugin must not end: a resource without one is admitted by the kubelet as if it were there.
    """
    listed = sorted(cards, key=lambda card: (card.index, card.id))
    resources: dict[str, list[Device]] = {name: [] for name in before}
    for card in listed:
        if not card.changing:
            for resource, device in _devices(card):
                fit = card.healthy and (card.kept is None or device in card.kept)
                resources.setdefault(resource, []).append(Device(device, fit))
    return Offer(
        {name: tuple(resources[name]) for name in sorted(resources)}, {card.id: card for card in listed}
    )


def _devices(card: NodeCard) -> Iterator[tuple[str, str]]:
    """Resource and device, one by one."""
    if card.pool is not None:
        yield from ((request.POOL + card.pool.name, device) for device in _pooled(card, card.pool))
    elif card.mig_enabled or card.slots:
        yield from ((mig.resource(slot.profile), _slot(card, slot)) for slot in card.slots)
    else:
        yield request.GPU, card.id
        yield from ((request.PERCENT, device) for device in _percents(card))


def _pooled(card: NodeCard, pool: Membership) -> Iterator[str]:
    """Nothing of a card that is not cut, or not left whole, as its pool says."""
    cut = card.mig_enabled or bool(card.slots)
    if pool.sharing == "MIG":
        yield from (_slot(card, slot) for slot in card.slots)
    elif cut:
        return
    elif pool.sharing == "Exclusive":
        yield card.id
    elif pool.sharing == "TimeSlice":
        yield from (f"{card.id}{BETWEEN}s{number}" for number in range(pool.slices))
    else:
        yield from _percents(card)


def _percents(card: NodeCard) -> Iterator[str]:
    return (f"{card.id}{BETWEEN}p{number:02}" for number in range(WHOLE))


def _slot(card: NodeCard, slot: CardSlot) -> str:
    return f"{card.id}{BETWEEN}{slot.id}"


def foreign(node: str, registered: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The resources somebody else serves, by the devices the kubelet knows of each.

    Ours are named after the node, also those of an agent that was here before us.
    """
    return frozenset(
        resource
        for resource, devices in registered.items()
        if any(not device.startswith(f"{node}-") for device in devices)
    )
