"""The cards of each node that match each pool: their number, candidates and conflicts.

The result for a node is cached until the node, its cards or the specs of pools change, so that a reconcile of
a pool reads only the nodes with matching cards.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from croupier.api.core_v1 import Node
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_pool
from croupier.api.gpu.pool import PoolCandidate
from croupier.capacity import index_keys
from croupier.core.pools import assignment
from croupier.core.pools.assignment import (
    MANUAL_APPROVAL,
    Approval,
    AssignableCard,
    Assignment,
    AssignmentPool,
)
from croupier.core.pools.mig_support import NO_CARDS, SelectedCards
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import ObjectChange, StoreIndex


@dataclass(frozen=True, slots=True)
class NodeMatchInformers:
    pools: Informer[GPUPool]
    devices: Informer[GPUDevice]
    nodes: Informer[Node]
    inventories: Informer[GPUNodeInventory]


@dataclass(frozen=True, slots=True)
class NodeMatch:
    """The cards of one node that match one pool."""

    candidates: tuple[PoolCandidate, ...] = ()
    conflicts: tuple[str, ...] = ()
    selected: SelectedCards = NO_CARDS


class NodeMatches:
    def __init__(self, sources: NodeMatchInformers, approval: Approval = MANUAL_APPROVAL) -> None:
        self._sources = sources
        self._approval = approval
        self._devices = sources.devices.store.index(index_keys.node_of_device)
        self._stale: set[str] = set()
        self._nodes: dict[str, Mapping[str, NodeMatch]] = {}
        self._pools: dict[str, dict[str, NodeMatch]] = {}
        self._changed: Callable[[str], None] = lambda _: None

    @property
    def indexes(self) -> tuple[StoreIndex[Any, Any], ...]:
        """The indexes that the caller must keep up to date."""
        return (self._devices,)

    def follow(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Follow changes, and call `changed` for each affected pool; the return value unsubscribes."""
        sources, self._changed = self._sources, changed
        self._stale.update(self._devices.values(), self._nodes)
        endings = (
            sources.devices.store.subscribe(self._device_changed),
            sources.inventories.store.subscribe(lambda change: self._stale.add(change.key.name)),
            sources.nodes.store.subscribe(self._node_changed),
            sources.pools.store.subscribe(self._pool_changed),
        )

        def end() -> None:
            for unsubscribe in endings:
                unsubscribe()

        return end

    def of(self, pool: str) -> Mapping[str, NodeMatch]:
        """The matches of a pool by node."""
        self.refresh()
        return self._pools.get(pool, {})

    def refresh(self) -> None:
        """Recompute the nodes that changed."""
        if not self._stale:
            return
        pools = [convert_pool.pool(pool) for pool in self._sources.pools.store]
        touched = {name for node in tuple(self._stale) for name in self._recompute(node, pools)}
        self._stale.clear()
        for name in touched:
            self._changed(name)

    def _recompute(self, node: str, pools: list[AssignmentPool]) -> set[str]:
        """The pools for which the result of the node changed."""
        old, new = self._nodes.get(node, {}), self._claims(node, pools)
        if new:
            self._nodes[node] = new
        else:
            self._nodes.pop(node, None)
        touched = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        for name in touched:
            nodes = self._pools.setdefault(name, {})
            nodes.pop(node, None)
            if name in new:
                nodes[node] = new[name]
            if not nodes:
                del self._pools[name]
        return touched

    def _claims(self, node: str, pools: list[AssignmentPool]) -> dict[str, NodeMatch]:
        existing = self._sources.nodes.store.named(node)
        labels = existing.metadata.labels if existing is not None else {}
        inventory = self._sources.inventories.store.named(node)
        devices = sorted(self._devices.get(node), key=lambda device: device.metadata.name)
        cards = [
            convert_pool.card(device, obstacle=convert_pool.obstacle(device, inventory)) for device in devices
        ]
        decisions = assignment.decide(cards, labels, pools, self._approval)
        claims = {}
        for pool in pools:
            selected = assignment.selected(pool, cards, labels)
            claim = NodeMatch(
                _candidates(node, pool.name, cards, decisions), _conflicts(pool.name, decisions), selected
            )
            if claim != NodeMatch():
                claims[pool.name] = claim
        return claims

    def _device_changed(self, change: ObjectChange[GPUDevice]) -> None:
        for device in (change.old, change.new):
            self._stale.update(index_keys.node_of_device(device) if device is not None else ())

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        old = change.old.metadata.labels if change.old is not None else None
        new = change.new.metadata.labels if change.new is not None else None
        if old != new and self._devices.keys(change.key.name):
            self._stale.add(change.key.name)

    def _pool_changed(self, change: ObjectChange[GPUPool]) -> None:
        old = convert_pool.pool(change.old) if change.old is not None else None
        new = convert_pool.pool(change.new) if change.new is not None else None
        if old != new:
            self._stale.update(self._devices.values())


def _candidates(
    node: str, pool: str, cards: list[AssignableCard], decisions: Mapping[str, Assignment]
) -> tuple[PoolCandidate, ...]:
    """Cards that match the pool or are annotated with it, and are not in it."""
    candidates = []
    for card in cards:
        pending = decisions[card.id].pending
        reason = next((entry.sentence for entry in pending if entry.pool == pool), "")
        if not reason and decisions[card.id].pool == pool:
            reason = f"card {card.id} joins the pool once the ledger has withdrawn it"
        if reason and card.pool != pool:
            candidates.append(PoolCandidate(inventory_id=card.id, node=node, reason=reason))
    return tuple(candidates)


def _conflicts(pool: str, decisions: Mapping[str, Assignment]) -> tuple[str, ...]:
    contested = ((card, decision.contested) for card, decision in decisions.items())
    return tuple(assignment.contest_message(card, pools) for card, pools in contested if pool in pools)
