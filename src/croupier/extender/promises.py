"""What filter has promised and bind has not taken yet.

The scheduler binds one pod in the background while it asks about the next. Until the first one's
claim is in the book, its promise is counted against the node; without that the next pod would be
sent to a card that is just being taken. Nobody tells us when the scheduler gives a pod up, so a
promise ends by itself after a while.
"""

from collections.abc import Collection
from dataclasses import dataclass

from croupier.core.placing.placement import Strategy
from croupier.extender.asked import Asked

LASTING = 10.0
"""Seconds a promise counts."""


@dataclass(frozen=True, slots=True)
class Promise:
    asked: Asked
    node: str
    strategy: Strategy
    until: float
    """By the monotonic clock."""


class Promises:
    """At most one for each pod. Every method that changes them returns the nodes they changed for."""

    def __init__(self, lasting: float = LASTING) -> None:
        self._lasting = lasting
        self._by_pod: dict[str, Promise] = {}  # in the order they end
        self._by_node: dict[str, dict[str, Promise]] = {}

    def __len__(self) -> int:
        return len(self._by_pod)

    def of(self, uid: str) -> Promise | None:
        return self._by_pod.get(uid)

    def on(self, node: str) -> Collection[Promise]:
        return self._by_node.get(node, {}).values()

    def make(self, asked: Asked, node: str, strategy: Strategy, *, now: float) -> Promise:
        """In place of an earlier one to the same pod, which `drop` has ended."""
        promise = Promise(asked, node, strategy, now + self._lasting)
        self._by_pod[asked.uid] = promise
        self._by_node.setdefault(node, {})[asked.uid] = promise
        return promise

    def drop(self, uid: str) -> str | None:
        """The node that has more room now."""
        promise = self._by_pod.pop(uid, None)
        if promise is None:
            return None
        there = self._by_node[promise.node]
        del there[uid]
        if not there:
            del self._by_node[promise.node]
        return promise.node

    def expire(self, now: float) -> set[str]:
        """End those whose time is up."""
        ended = []
        for uid, promise in self._by_pod.items():
            if promise.until > now:
                break
            ended.append(uid)
        return {node for uid in ended if (node := self.drop(uid)) is not None}
