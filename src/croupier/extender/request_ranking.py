"""The ranking of nodes for one kind of request, kept sorted while single nodes change.

In a sorted list the best candidate is almost always the first one, so a filter call does not need to compare
all candidates.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from typing import TypeAlias

from croupier.core.model.refusal import Refusal
from croupier.core.placement.placement import Rank

RankOrRefusal: TypeAlias = Rank | Refusal


class RequestRanking:
    def __init__(self) -> None:
        self._merits: dict[str, RankOrRefusal] = {}
        self._order: list[tuple[Rank, str]] = []

    def missing(self, candidates: Collection[str]) -> Collection[str]:
        """The candidates that are not ranked."""
        return frozenset(candidates).difference(self._merits)

    def set(self, node: str, merit: RankOrRefusal) -> None:
        """Rank a node that is missing."""
        self._merits[node] = merit
        if not isinstance(merit, Refusal):
            insort(self._order, (merit, node))

    def forget(self, node: str) -> None:
        merit = self._merits.pop(node, None)
        if merit is not None and not isinstance(merit, Refusal):
            del self._order[bisect_left(self._order, (merit, node))]

    def best(self, candidates: Collection[str]) -> str | None:
        """The best candidate that fits; ties are broken by the node's name."""
        possible = frozenset(candidates)
        return next((node for _, node in self._order if node in possible), None)

    def reasons(self, candidates: Sequence[str]) -> dict[str, str]:
        """The refusal of each candidate that does not fit."""
        return {node: merit.reason for node in candidates if isinstance(merit := self._merits[node], Refusal)}
