"""Selectors of a pool: by properties and labels of cards, and by labels of nodes.

Exclusion is stronger than inclusion: a card that matches any field of `exclude` is not selected, and a card
must match every field of `include` that is set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from croupier.core.pods.scheduler_filters import LabelRequirement

IndexRange: TypeAlias = tuple[int, int]
"""First and last index, both inclusive."""


@dataclass(frozen=True, slots=True)
class LabelMatch:
    """A label selector: every requirement must hold, and an empty selector matches everything."""

    equal: Mapping[str, str] = field(default_factory=dict)
    requirements: tuple[LabelRequirement, ...] = ()


ANYTHING: Final = LabelMatch()


@dataclass(frozen=True, slots=True)
class CardFilter:
    """Properties of cards; an empty field is not checked."""

    ids: frozenset[str] = frozenset()
    pci: frozenset[str] = frozenset()
    """PCI vendor and device ids, such as 10de/2331."""
    indexes: tuple[IndexRange, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    products: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    """MIG profiles, all of which the card must support."""
    mig_capable: bool | None = None


@dataclass(frozen=True, slots=True)
class CardSelector:
    include: CardFilter = CardFilter()
    exclude: CardFilter = CardFilter()


EVERY_CARD: Final = CardSelector()


@dataclass(frozen=True, slots=True)
class CardTraits:
    """The properties of a card. An unknown property matches no filter on it."""

    id: str
    index: int | None = None
    pci: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    product: str = ""
    profiles: frozenset[str] = frozenset()
    mig_capable: bool | None = None


def matches_labels(labels: Mapping[str, str], selector: LabelMatch) -> bool:
    if any(labels.get(key) != value for key, value in selector.equal.items()):
        return False
    return all(required.is_met(labels.get(required.key)) for required in selector.requirements)


def selects(selector: CardSelector, card: CardTraits) -> bool:
    return all(_results(selector.include, card)) and not any(_results(selector.exclude, card))


def _results(asked: CardFilter, card: CardTraits) -> list[bool]:
    """One result for every field that is set."""
    answers = []
    if asked.ids:
        answers.append(card.id in asked.ids)
    if asked.pci:
        answers.append(card.pci in asked.pci)
    if asked.indexes:
        answers.append(_within(card.index, asked.indexes))
    if asked.labels:
        answers.append(matches_labels(card.labels, LabelMatch(asked.labels)))
    if asked.products:
        answers.append(card.product in asked.products)
    if asked.profiles:
        answers.append(asked.profiles <= card.profiles)
    if asked.mig_capable is not None:
        answers.append(card.mig_capable is asked.mig_capable)
    return answers


def _within(index: int | None, spans: tuple[IndexRange, ...]) -> bool:
    return index is not None and any(low <= index <= high for low, high in spans)


def parse_range(written: str) -> IndexRange:
    """Parse an index range of a GPUPool, such as `0-1` or `3`."""
    low, _, high = written.partition("-")
    return int(low), int(high or low)
