"""Which cards a node has, and whether all that is told of them fits together.

The agent of the node sees the cards and is believed; without one, NFD's scan of the bus, then labels. What
the others say must agree with it: two who contradict each other cannot both be right, and a pool that
selects by the wrong one would take the wrong card.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from croupier.core.cards.features import Features

MOST: Final = 64
"""Cards of one node that are listed."""
NEAR: Final = 0.02
"""How far two may be apart on the memory of a card: some count what the driver keeps for itself."""
_SHARED: Final = "-SHARED"

Reason: TypeAlias = Literal["InventorySynced", "NodeFeatureMissing", "NoDevicesDiscovered"]


@dataclass(frozen=True, slots=True)
class Card:
    """One card as the best source tells of it; without an address where nobody tells where it sits."""

    index: int
    address: str = ""
    uuid: str = ""
    vendor: str = ""
    device: str = ""
    product: str = ""
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What the agent of the node reports; `readable` is false for what another version wrote."""

    cards: tuple[Card, ...] = ()
    driver: str = ""
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Sighting:
    """All that is known of the node's cards now."""

    cards: tuple[Card, ...] = ()
    whole: bool = False
    """These are all there are, so that one that is not among them is gone."""
    troubles: tuple[str, ...] = ()
    """What is missing or contradicts itself, in sentences."""

    @property
    def reason(self) -> Reason:
        if self.troubles:
            return "NodeFeatureMissing"
        return "InventorySynced" if self.cards else "NoDevicesDiscovered"

    @property
    def message(self) -> str:
        if self.troubles:
            return "; ".join(self.troubles)
        if self.cards:
            return ""
        return "nobody knows of a card of NVIDIA (PCI vendor 10de, class 0300 or 0302) in this node"


def see(told: Told | None, features: Features, offered: int = 0) -> Sighting:
    """`offered` is how many cards a device plugin has to give, whoever runs it."""
    if told is not None and told.readable:
        return _from_agent(told, features)
    unreadable = ["the report of the node's agent cannot be read: is it of another version?"]
    troubles = (*(unreadable if told is not None else ()), *_incomplete(features, offered))
    numbers = [one.index for one in features.cards] or range(features.count or 0)
    cards = tuple(_described(index, features) for index in numbers[:MOST])
    counted = len(features.cards) if features.scanned and features.count is None else features.count
    whole = told is None and bool(features.cards) and counted == len(features.cards)
    return Sighting(cards, whole, troubles)


def _described(index: int, features: Features) -> Card:
    pci = next((one for one in features.cards if one.index == index), None)
    return Card(
        index,
        vendor=pci.vendor if pci else "",
        device=pci.device if pci else "",
        product=model(features.product),
        memory_mib=features.memory_mib,
    )


def _incomplete(features: Features, offered: int) -> Iterator[str]:
    if features.is_empty:
        if offered:
            yield f"a device plugin offers nvidia.com/gpu: {offered}, and nobody tells what these cards are"
        yield from features.wrong
        return
    if features.missing:
        yield f"missing: {', '.join(features.missing)}"
    yield from features.wrong
    if features.cards and features.count is not None and features.count != len(features.cards):
        yield f"nvidia.com/gpu.count is {features.count}, and {_told_of(features)}"


def _told_of(features: Features) -> str:
    by = "NodeFeature lists" if features.scanned else "labels gpu.deckhouse.io/device.* tell of"
    number = len(features.cards)
    return f"{by} {number} card{'' if number == 1 else 's'}"


def _from_agent(told: Told, features: Features) -> Sighting:
    blind = not told.cards and not told.driver
    if blind:
        trouble = "the node's agent finds no driver, so it sees no card"
        return Sighting((), whole=False, troubles=(trouble,))
    troubles = [*_unclear(told.cards), *_disagreement(told.cards, features), *features.wrong]
    cards = tuple(sorted(told.cards, key=lambda card: (card.index, card.address)))
    if len(cards) > MOST:
        troubles.append(f"the node has {len(cards)} cards; those beyond {MOST} are left out")
    return Sighting(cards[:MOST], whole=True, troubles=tuple(troubles))


def _unclear(cards: Iterable[Card]) -> Iterator[str]:
    """What the agent itself leaves open."""
    listed = tuple(cards)
    for card in listed:
        parts = {"PCI device": card.device, "product": card.product, "memory": card.memory_mib}
        if lacking := [name for name, value in parts.items() if not value]:
            yield f"the node's agent does not tell the {' and '.join(lacking)} of card {card.index}"
    for what, values in {
        "index": Counter(str(card.index) for card in listed),
        "PCI address": Counter(card.address for card in listed),
    }.items():
        for value, number in sorted(values.items()):
            if number > 1:
                yield f"the node's agent tells of {number} cards with {what} {value or 'unknown'}"


def _disagreement(cards: Sequence[Card], features: Features) -> Iterator[str]:
    """Where labels and NodeFeature say something else than the agent sees."""
    if features.is_empty:
        return
    seen = f"the node's agent sees {len(cards)}"
    if features.cards and len(features.cards) != len(cards):
        yield f"{_told_of(features)}, and {seen}"
    elif extra := _beyond(features, cards):
        there = ", ".join(sorted({card.device for card in cards}))
        yield f"PCI device {', '.join(extra)} is told of, and the cards that are there are {there}"
    named = [card for card in cards if _same_product(card.product, features.product)]
    if features.product and not named:
        there = ", ".join(sorted({card.product for card in cards})) or "no card"
        yield f"nvidia.com/gpu.product is {features.product}, and the node's agent sees {there}"
    if features.count is not None and features.count not in (len(cards), len(named) or -1):
        yield f"nvidia.com/gpu.count is {features.count}, and {seen}"
    sizes = sorted({card.memory_mib for card in named or cards if card.memory_mib})
    memory = features.memory_mib
    if memory is None or features.is_cut or not sizes or any(_near(memory, size) for size in sizes):
        return
    there = ", ".join(str(size) for size in sizes)
    yield f"nvidia.com/gpu.memory is {memory}, and the node's agent sees cards of {there} MiB"


def _beyond(features: Features, cards: Iterable[Card]) -> list[str]:
    """PCI devices that are told of more often than there are cards of them."""
    told = Counter(one.device for one in features.cards if one.device)
    return sorted((told - Counter(card.device for card in cards)).keys())


def _near(one: int, other: int) -> bool:
    return abs(one - other) <= NEAR * other


def model(product: str) -> str:
    """The card's model, where GPU Feature Discovery names how it is shared or cut beside it."""
    return product.removesuffix(_SHARED).partition("-MIG-")[0]


def _same_product(one: str, other: str) -> bool:
    return one.replace(" ", "-").casefold() == model(other).replace(" ", "-").casefold()


_SINCE: Final[tuple[tuple[tuple[int, int], tuple[str, ...]], ...]] = (
    ((1, 0), ("fp32",)),
    ((1, 3), ("fp64",)),
    ((5, 3), ("fp16",)),
    ((6, 1), ("int8",)),
    ((7, 5), ("int4",)),
    ((8, 0), ("bf16", "tf32")),
    ((8, 9), ("fp8",)),
    ((10, 0), ("fp4", "fp6")),
)


def precisions(major: int, minor: int) -> tuple[str, ...]:
    """The number formats that cards of this compute capability compute in."""
    return tuple(sorted(name for since, names in _SINCE if (major, minor) >= since for name in names))
