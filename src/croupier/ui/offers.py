"""The pools that wait for approval to take a card, cached per node.

They come from the function that assigns cards. They depend on the cards of a node, its labels, its inventory
and the pools, not on the ledger: a change of a holder does not recompute them.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from croupier.api.gpu import convert_pool
from croupier.capacity.cluster_view import ClusterView
from croupier.core.pools import assignment
from croupier.core.pools.assignment import Approval, Assignment, AssignmentPool
from croupier.ui import rows

_NONE: Final[Mapping[str, tuple[str, ...]]] = {}


class Offers:
    def __init__(self, view: ClusterView, approval: Approval) -> None:
        self._view = view
        self._approval = approval
        self._known: dict[str, Mapping[str, tuple[str, ...]]] = {}
        self._stale: dict[str, None] = {}
        self._pools: list[AssignmentPool] | None = None

    @property
    def stale(self) -> bool:
        return bool(self._stale)

    def of(self, node: str) -> Mapping[str, tuple[str, ...]]:
        """By card."""
        return self._known.get(node, _NONE)

    def mark(self, node: str) -> None:
        self._stale[node] = None

    def pools_changed(self) -> None:
        self._pools = None
        nodes = {
            node
            for device in self._view.sources.devices.store
            if (node := device.status.node_name) is not None
        }
        self._stale |= dict.fromkeys(nodes)

    def refresh(self, most: int) -> set[str]:
        """Recompute at most `most` marked nodes; the nodes whose offers changed."""
        chosen = [node for node, _ in zip(self._stale, range(most), strict=False)]
        changed = set()
        for node in chosen:
            del self._stale[node]
            offers = rows.offers(self.decide(node))
            if offers != self.of(node):
                self._known[node] = offers
                changed.add(node)
        return changed

    def decide(self, node: str) -> Mapping[str, Assignment]:
        """The assignment of each card of a node."""
        existing = self._view.node(node)
        labels = existing.metadata.labels if existing is not None else {}
        inventory = self._view.sources.inventories.store.named(node)
        devices = sorted(self._view.devices_of(node), key=lambda device: device.metadata.name)
        cards = [
            convert_pool.card(device, obstacle=convert_pool.obstacle(device, inventory)) for device in devices
        ]
        return assignment.decide(cards, labels, self._assignment_pools(), self._approval)

    def _assignment_pools(self) -> Iterable[AssignmentPool]:
        if self._pools is None:
            self._pools = [convert_pool.pool(pool) for pool in self._view.sources.pools.store]
        return self._pools
