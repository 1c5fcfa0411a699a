"""Which device plugins a node needs, and which devices each of them lists.

The kubelet counts whole devices, so a shared card is served as units: a hundred for percent, one for each
time slice. The name of a device contains its card, because one card can be listed under several resources:
the kubelet does not exclude across resources, so the plugin does.

Devices deliberately carry no NUMA topology: a kubelet that aligns devices would choose by NUMA node without
asking for a preference, but the ledger has granted particular cards.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from croupier.core.model.card_request import WHOLE_CARD
from croupier.core.model.enforcement import CardEnforcement
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.mig import MigDevice
from croupier.core.model.sharing import Sharing
from croupier.core.pods import request_parser

SEPARATOR: Final = "::"
"""Separates the card from its part in the name of a device; no card name contains it."""


@dataclass(frozen=True, slots=True)
class PoolMembership:
    """The pool of a card, and how that pool shares its cards."""

    name: str
    sharing: Sharing


@dataclass(frozen=True, slots=True)
class NodeCard:
    """One card as the device plugins serve it."""

    id: str
    """The inventoryID."""
    gpu: GpuCard
    """Without health readings, so that equal cards serve equal devices."""
    changing: bool = False
    """The card is being repartitioned, or is about to be: nothing of it may be allocated."""
    pool: PoolMembership | None = None
    enforcement: CardEnforcement | None = None
    """What enforces shares of the card. None for a card that is not shared."""
    kept: frozenset[str] | None = None
    """If set, only these devices may be allocated: those of current pods; the card accepts no new pods."""

    @property
    def capacity(self) -> int:
        """The sum of all shares: time slices in a TimeSlice pool, otherwise percent."""
        return self.pool.sharing.slices if self.time_sliced and self.pool else WHOLE_CARD

    @property
    def time_sliced(self) -> bool:
        return self.pool is not None and self.pool.sharing.mode == "TimeSlice"

    def usable(self, device: str) -> bool:
        """Whether the device can be allocated. The enforcement of shares may withhold it."""
        if not self.gpu.health.healthy or (self.kept is not None and device not in self.kept):
            return False
        if self.enforcement is None:
            return True
        if parse_unit(device).is_percent:
            return self.enforcement.ready
        return self.pool is None or not self.enforcement.owned  # without a pool, Allocate waits for the end


@dataclass(frozen=True, slots=True)
class PluginDevice:
    id: str
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class ServedResources:
    """The resources that a node serves, with their devices and cards."""

    resources: Mapping[str, tuple[PluginDevice, ...]] = field(default_factory=dict)
    cards: Mapping[str, NodeCard] = field(default_factory=dict)

    def healthy(self) -> dict[str, int]:
        """The number of healthy devices by resource."""
        return {name: sum(device.healthy for device in devices) for name, devices in self.resources.items()}


@dataclass(frozen=True, slots=True)
class DeviceUnit:
    """A parsed device name: a card, one percent or time slice of it, or one of its MIG devices."""

    card: str
    part: str = ""
    """Empty for the whole card; `p07`, `s3`, or the id of a slot."""

    @property
    def share(self) -> int:
        """The share of the card: one percent or slice, everything for a whole card, 0 for a slot."""
        return WHOLE_CARD if not self.part else int(not self.slot)

    @property
    def is_percent(self) -> bool:
        return self.part.startswith("p")

    @property
    def slot(self) -> str:
        """The id of the MIG device; empty for other units."""
        counted = not self.part or (self.part[0] in "ps" and self.part[1:].isdigit())
        return "" if counted else self.part


@lru_cache(maxsize=16384)  # a node has a few thousand devices, and each is read at every admission
def parse_unit(device: str) -> DeviceUnit:
    """Parse the name of a device, such as `node-1-0000-65-00-0::p07`."""
    card, _, part = device.partition(SEPARATOR)
    return DeviceUnit(card, part)


def served_resources(cards: Iterable[NodeCard], before: Collection[str] = ()) -> ServedResources:
    """The resources to serve. A resource that was served `before` stays, possibly without devices.

    Its plugin must keep running: without a plugin the kubelet would admit pods that request the resource.
    """
    listed = sorted(cards, key=lambda card: (card.gpu.index, card.id))
    resources: dict[str, list[PluginDevice]] = {name: [] for name in before}
    for card in listed:
        if not card.changing:
            for resource, device in _devices(card):
                resources.setdefault(resource, []).append(PluginDevice(device, card.usable(device)))
    return ServedResources(
        {name: tuple(resources[name]) for name in sorted(resources)}, {card.id: card for card in listed}
    )


def _devices(card: NodeCard) -> Iterator[tuple[str, str]]:
    """Pairs of resource and device."""
    if card.pool is not None:
        yield from ((request_parser.POOL + card.pool.name, device) for device in _pooled(card, card.pool))
    elif card.gpu.mig_enabled or card.gpu.slots:
        for slot in card.gpu.slots:
            yield request_parser.mig_resource(slot.profile), _slot(card, slot)
    else:
        yield request_parser.GPU, card.id
        yield from ((request_parser.PERCENT, device) for device in _percents(card))


def _pooled(card: NodeCard, pool: PoolMembership) -> Iterator[str]:
    """The devices of a pooled card; none if its partitioning does not match the mode of the pool."""
    partitioned = card.gpu.mig_enabled or bool(card.gpu.slots)
    if pool.sharing.mode == "MIG":
        yield from (_slot(card, slot) for slot in card.gpu.slots)
    elif partitioned:
        return
    elif pool.sharing.mode == "Exclusive":
        yield card.id
    elif pool.sharing.mode == "TimeSlice":
        yield from (f"{card.id}{SEPARATOR}s{number}" for number in range(pool.sharing.slices))
    else:
        yield from _percents(card)


def _percents(card: NodeCard) -> Iterator[str]:
    return (f"{card.id}{SEPARATOR}p{number:02}" for number in range(WHOLE_CARD))


def _slot(card: NodeCard, slot: MigDevice) -> str:
    return f"{card.id}{SEPARATOR}{slot.id}"


def foreign(node: str, registered: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The resources that another device plugin serves, by the devices that the kubelet knows.

    Devices of Croupier start with the name of the node, including those of a previous agent.
    """
    return frozenset(
        resource
        for resource, devices in registered.items()
        if any(not device.startswith(f"{node}-") for device in devices)
    )
