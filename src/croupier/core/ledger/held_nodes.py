"""The nodes that hold cards for pods that are not bound yet.

A Reservation holds cards under the pod's name, the extender's own hold includes the UID. In both cases the
pod must go to that node. The index is updated when the ledger of a node changes.
"""

from collections.abc import Collection, Iterable


class HeldNodes:
    def __init__(self) -> None:
        self._nodes: dict[str, set[str]] = {}
        self._held: dict[str, frozenset[str]] = {}

    def of(self, holder: str) -> Collection[str]:
        return self._nodes.get(holder, ())

    def set(self, node: str, holders: Iterable[str]) -> None:
        """Replace the Held holders of `node`."""
        before, after = self._held.get(node, frozenset()), frozenset(holders)
        for holder in before - after:
            nodes = self._nodes[holder]
            nodes.discard(node)
            if not nodes:
                del self._nodes[holder]
        for holder in after - before:
            self._nodes.setdefault(holder, set()).add(node)
        if after:
            self._held[node] = after
        else:
            self._held.pop(node, None)
