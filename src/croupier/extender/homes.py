"""Where somebody waits already: which nodes hold cards for a pod that is not bound yet.

A person's Reservation holds under the pod's name, our own hold under its UID. Either way the pod
belongs there and nowhere else. Kept from the ledgers, node by node, when they change.
"""

from collections.abc import Collection, Iterable


class Homes:
    def __init__(self) -> None:
        self._nodes: dict[str, set[str]] = {}
        self._held: dict[str, frozenset[str]] = {}

    def of(self, holder: str) -> Collection[str]:
        return self._nodes.get(holder, ())

    def set(self, node: str, holders: Iterable[str]) -> None:
        """Exactly these wait on `node` now."""
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
