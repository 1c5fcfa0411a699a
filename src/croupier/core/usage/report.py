"""Sums usage over a time, by any of namespace, pool, model and mode."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from croupier.core.usage.account import HourUsage
from croupier.core.usage.holdings import UsageKey

Dimension: TypeAlias = Literal["namespace", "pool", "model", "mode"]
DIMENSIONS: Final[tuple[Dimension, ...]] = ("namespace", "pool", "model", "mode")

Hours: TypeAlias = Mapping[int, Mapping[UsageKey, HourUsage]]


@dataclass(slots=True)
class UsageRow:
    group: tuple[str, ...]
    """The value of each dimension."""
    card_seconds: Fraction = field(default_factory=Fraction)
    holders: int = 0
    """Pods that held cards in this time. A pod counts once for each pool, model and mode that it held."""


def rows(
    hours: Hours, by: Sequence[Dimension], *, since: int, until: int, namespace: str | None = None
) -> list[UsageRow]:
    """The usage of the hours from `since` up to, but without, `until`; the largest usage first."""
    sums: dict[tuple[str, ...], UsageRow] = {}
    for hour in range(since, until):
        for key, usage in hours.get(hour, {}).items():
            if namespace in (None, key.namespace):
                group = tuple(str(getattr(key, dimension)) for dimension in by)
                row = sums.setdefault(group, UsageRow(group))
                row.card_seconds += usage.card_seconds
                row.holders += usage.began + (usage.carried if hour == since else 0)
    used = (row for row in sums.values() if row.card_seconds or row.holders)
    return sorted(used, key=lambda row: (-row.card_seconds, row.group))


def total(rows: Iterable[UsageRow]) -> UsageRow:
    """The sum of all rows."""
    sums = UsageRow(())
    for row in rows:
        sums.card_seconds += row.card_seconds
        sums.holders += row.holders
    return sums
