"""Which cards a pool may take: by what they are, by their labels, and by the labels of their node.

A pool is a promise about its cards, so leaving one out is stronger than taking one in: a card that any
field of `exclude` names is out, and every field of `include` that is set must agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Span: TypeAlias = tuple[int, int]
"""From this index to that, both of them too."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a label. An operator that nobody knows is never met."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Labelled:
    """Objects by their labels: every requirement must hold, and none at all matches everything."""

    equal: Mapping[str, str] = field(default_factory=dict)
    requirements: tuple[Requirement, ...] = ()


ANYTHING: Final = Labelled()


@dataclass(frozen=True, slots=True)
class Filter:
    """Cards by what they are; a field that is empty says nothing."""

    ids: frozenset[str] = frozenset()
    pci: frozenset[str] = frozenset()
    """Vendor and device, such as 10de/2331."""
    indexes: tuple[Span, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    products: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    """MIG profiles, all of which the card can be cut into."""
    mig_capable: bool | None = None


@dataclass(frozen=True, slots=True)
class Selector:
    include: Filter = Filter()
    exclude: Filter = Filter()


EVERY_CARD: Final = Selector()


@dataclass(frozen=True, slots=True)
class Traits:
    """What a selector can ask about a card. What is not known of a card matches nothing that names it."""

    id: str
    index: int | None = None
    pci: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    product: str = ""
    profiles: frozenset[str] = frozenset()
    mig_capable: bool | None = None


def labelled(labels: Mapping[str, str], selector: Labelled) -> bool:
    if any(labels.get(key) != value for key, value in selector.equal.items()):
        return False
    return all(_meets(labels.get(one.key), one) for one in selector.requirements)


def _meets(value: str | None, wanted: Requirement) -> bool:
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def selects(selector: Selector, card: Traits) -> bool:
    return all(_answers(selector.include, card)) and not any(_answers(selector.exclude, card))


def _answers(asked: Filter, card: Traits) -> list[bool]:
    """One answer for every field that is set."""
    answers = []
    if asked.ids:
        answers.append(card.id in asked.ids)
    if asked.pci:
        answers.append(card.pci in asked.pci)
    if asked.indexes:
        answers.append(_within(card.index, asked.indexes))
    if asked.labels:
        answers.append(labelled(card.labels, Labelled(asked.labels)))
    if asked.products:
        answers.append(card.product in asked.products)
    if asked.profiles:
        answers.append(asked.profiles <= card.profiles)
    if asked.mig_capable is not None:
        answers.append(card.mig_capable is asked.mig_capable)
    return answers


def _within(index: int | None, spans: tuple[Span, ...]) -> bool:
    return index is not None and any(low <= index <= high for low, high in spans)


def span(written: str) -> Span:
    """`0-1` and `3`, as the schema of a pool lets them be written."""
    low, _, high = written.partition("-")
    return int(low), int(high or low)
