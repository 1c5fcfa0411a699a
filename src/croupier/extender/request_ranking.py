"""The ranking of nodes for one kind of request, kept sorted while single nodes change.

In a sorted list the best candidate is almost always the first one, so a filter call does not need to compare
all candidates.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
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

    def best(self, candidates: Collection[str], most: int) -> tuple[str, ...]:
        """The best candidates that fit, in order; ties are broken by the node's name."""
        possible = frozenset(candidates)
        fits = (node for _, node in self._order if node in possible)
        return tuple(islice(fits, most))

    def ranks(self, candidates: Iterable[str]) -> Mapping[str, RankOrRefusal]:
        return {node: self._merits[node] for node in candidates}

    def reasons(self, candidates: Sequence[str]) -> dict[str, str]:
        """The refusal of each candidate that does not fit."""
        merits = self.ranks(candidates)
        return {node: merit.reason for node, merit in merits.items() if isinstance(merit, Refusal)}
