"""Which cards a node has, and whether all sources agree about them.

The node's agent takes precedence, then the PCI scan of NFD, then labels. The other sources must agree with
the first one: otherwise a pool that selects by a wrong label would take the wrong card.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from croupier.core.cards.features import GpuFeatures
from croupier.core.model import name_list
from croupier.core.model.card import MAX_CARDS
from croupier.core.model.gpu_card import GpuCard

MEMORY_TOLERANCE: Final = 0.02
"""Tolerated relative difference in memory size: some sources include memory reserved by the driver."""
_SHARED: Final = "-SHARED"

Reason: TypeAlias = Literal["InventorySynced", "NodeFeatureMissing", "NoDevicesDiscovered"]


@dataclass(frozen=True, slots=True)
class AgentCards:
    """The report of the node's agent; `readable` is false for a format of another version."""

    cards: tuple[GpuCard, ...] = ()
    driver: str = ""
    readable: bool = True


@dataclass(frozen=True, slots=True)
class DiscoveredCards:
    """The cards of the node, merged from all sources."""

    cards: tuple[GpuCard, ...] = ()
    is_complete: bool = False
    """The list is complete: a card that is not listed is gone."""
    troubles: tuple[str, ...] = ()
    """Missing and contradictory information, as sentences."""

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
        return "no NVIDIA card (PCI vendor 10de, class 0300 or 0302) was found in this node"


def discover(told: AgentCards | None, features: GpuFeatures, offered: int = 0) -> DiscoveredCards:
    """`offered` is the number of nvidia.com/gpu that any device plugin of the node advertises."""
    if told is not None and told.readable:
        return _from_agent(told, features)
    unreadable = ["the report of the node's agent cannot be read; check that the agent has the same version"]
    numbers = [card.index for card in features.cards] or range(features.count or 0)
    defects = (*_incomplete(features, offered), *_too_many(len(numbers)))
    troubles = (*(unreadable if told is not None else ()), *defects)
    cards = tuple(_described(index, features) for index in numbers[:MAX_CARDS])
    counted = len(features.cards) if features.scanned and features.count is None else features.count
    whole = told is None and bool(features.cards) and counted == len(features.cards)
    return DiscoveredCards(cards, whole, troubles)


def _described(index: int, features: GpuFeatures) -> GpuCard:
    listed = next((card for card in features.cards if card.index == index), GpuCard(index))
    return replace(
        listed,
        product=model(features.product),
        memory_mib=features.memory_mib or 0,
        compute_major=features.major or 0,
        compute_minor=features.minor or 0,
    )


def _incomplete(features: GpuFeatures, offered: int) -> Iterator[str]:
    if features.is_empty:
        if offered:
            yield f"a device plugin offers nvidia.com/gpu: {offered}, but no source describes these cards"
        yield from features.wrong
        return
    if features.missing:
        yield f"missing: {', '.join(features.missing)}"
    yield from features.wrong
    if features.cards and features.count is not None and features.count != len(features.cards):
        yield f"nvidia.com/gpu.count is {features.count}, but {_listed_cards(features)}"


def _listed_cards(features: GpuFeatures) -> str:
    by = "NodeFeature lists" if features.scanned else "labels gpu.deckhouse.io/device.* list"
    return f"{by} {name_list.counted(len(features.cards), 'card')}"


def _from_agent(told: AgentCards, features: GpuFeatures) -> DiscoveredCards:
    blind = not told.cards and not told.driver
    if blind:
        trouble = "the node's agent found no driver, so it cannot see any cards"
        return DiscoveredCards((), is_complete=False, troubles=(trouble,))
    troubles = [*_report_defects(told.cards), *_disagreement(told.cards, features), *features.wrong]
    cards = tuple(sorted(told.cards, key=lambda card: (card.index, card.address)))
    troubles += _too_many(len(cards))
    return DiscoveredCards(cards[:MAX_CARDS], is_complete=True, troubles=tuple(troubles))


def _too_many(count: int) -> Iterator[str]:
    if count > MAX_CARDS:
        yield f"the node has {count} cards; only the first {MAX_CARDS} are used (docs/limits.md)"


def _report_defects(cards: Iterable[GpuCard]) -> Iterator[str]:
    """Information that is missing or duplicated in the agent's report."""
    listed = tuple(cards)
    for card in listed:
        parts = {"PCI device": card.device, "product": card.product, "memory": card.memory_mib}
        if lacking := [name for name, value in parts.items() if not value]:
            yield f"the node's agent does not report the {' and '.join(lacking)} of card {card.index}"
    for what, values in {
        "index": Counter(str(card.index) for card in listed),
        "PCI address": Counter(card.address for card in listed),
    }.items():
        for value, number in sorted(values.items()):
            if number > 1:
                yield f"the node's agent reports {number} cards with {what} {value or 'unknown'}"


def _disagreement(cards: Sequence[GpuCard], features: GpuFeatures) -> Iterator[str]:
    """Where labels and NodeFeature contradict the agent's report."""
    if features.is_empty:
        return
    seen = f"the node's agent sees {len(cards)}"
    if features.cards and len(features.cards) != len(cards):
        yield f"{_listed_cards(features)}, but {seen}"
    elif extra := _beyond(features, cards):
        there = ", ".join(sorted({card.device for card in cards}))
        yield f"PCI device {', '.join(extra)} is listed, but the cards of the node are {there}"
    named = [card for card in cards if _same_product(card.product, features.product)]
    if features.product and not named:
        there = ", ".join(sorted({card.product for card in cards})) or "no card"
        yield f"nvidia.com/gpu.product is {features.product}, but the node's agent sees {there}"
    if features.count is not None and features.count not in (len(cards), len(named) or -1):
        yield f"nvidia.com/gpu.count is {features.count}, but {seen}"
    sizes = sorted({card.memory_mib for card in named or cards if card.memory_mib})
    memory = features.memory_mib
    if memory is None or features.is_partitioned or not sizes or any(_near(memory, size) for size in sizes):
        return
    there = ", ".join(str(size) for size in sizes)
    yield f"nvidia.com/gpu.memory is {memory}, but the node's agent sees cards of {there} MiB"


def _beyond(features: GpuFeatures, cards: Iterable[GpuCard]) -> list[str]:
    """PCI device ids that the features list more often than the node has such cards."""
    listed = Counter(card.device for card in features.cards if card.device)
    return sorted((listed - Counter(card.device for card in cards)).keys())


def _near(size: int, expected: int) -> bool:
    return abs(size - expected) <= MEMORY_TOLERANCE * expected


def model(product: str) -> str:
    """The card model: the product label without its suffix for sharing or MIG."""
    return product.removesuffix(_SHARED).partition("-MIG-")[0]


def _same_product(product: str, label: str) -> bool:
    return product.replace(" ", "-").casefold() == model(label).replace(" ", "-").casefold()


_PRECISIONS: Final[tuple[tuple[tuple[int, int], tuple[str, ...]], ...]] = (
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
    """The number formats that this compute capability supports."""
    return tuple(sorted(name for since, names in _PRECISIONS if (major, minor) >= since for name in names))
