"""Which objects of a group count: the oldest ones, up to a limit.

A tenant can create any number of objects. With a limit, the cost of each of them stays bounded, and the
objects that were there first are not affected by later ones.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable
from datetime import datetime
from typing import Any, Generic, TypeVar

G = TypeVar("G", bound=Hashable)
K = TypeVar("K", bound=tuple[Any, ...])


class CreationOrder(Generic[G, K]):
    """The objects of each group by creation time and key; the first `limit` of a group count."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._groups: dict[G, list[tuple[datetime, K]]] = {}

    def add(self, group: G, created: datetime, key: K) -> None:
        insort(self._groups.setdefault(group, []), (created, key))

    def remove(self, group: G, created: datetime, key: K) -> None:
        entries = self._groups[group]
        del entries[bisect_left(entries, (created, key))]
        if not entries:
            del self._groups[group]

    def clear(self) -> None:
        self._groups.clear()

    def counts(self, group: G, created: datetime, key: K) -> bool:
        """Whether the object is, or was before its removal, among the first `limit` of its group."""
        return bisect_left(self._groups.get(group, ()), (created, key)) < self.limit

    def first(self, group: G) -> list[K]:
        """The objects that count, oldest first."""
        return [key for _, key in self._groups.get(group, ())[: self.limit]]

    def around_limit(self, group: G) -> list[K]:
        """The last object that counts and the next one: an addition or removal may affect them."""
        return [key for _, key in self._groups.get(group, ())[self.limit - 1 : self.limit + 1]]
