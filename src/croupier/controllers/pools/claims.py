"""What each pool could have of each node: cards that match, that wait and what for, that two pools claim.

Worked out once for a node and kept until the node, its cards or the pools' wishes change, so that the look at
a pool costs the nodes it has to do with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from croupier.api.core_v1 import Node
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, pooling
from croupier.api.gpu.pool import PoolCandidate
from croupier.controllers.ledger import sight
from croupier.controllers.watched import Watched
from croupier.core.pools import assignment
from croupier.core.pools.assignment import NOBODY, Approval, Assignment, Card, Pool
from croupier.kube.store import Change, Index


@dataclass(frozen=True, slots=True)
class Sources:
    pools: Watched[GPUPool]
    devices: Watched[GPUDevice]
    nodes: Watched[Node]
    inventories: Watched[GPUNodeInventory]


@dataclass(frozen=True, slots=True)
class Claim:
    """What one pool could have of one node."""

    matching: int = 0
    candidates: tuple[PoolCandidate, ...] = ()
    conflicts: tuple[str, ...] = ()


class Claims:
    def __init__(self, sources: Sources, approval: Approval = NOBODY) -> None:
        self._sources = sources
        self._approval = approval
        self._devices = sources.devices.store.index(sight.node_of_device)
        self._stale: set[str] = set()
        self._nodes: dict[str, Mapping[str, Claim]] = {}
        self._pools: dict[str, dict[str, Claim]] = {}
        self._changed: Callable[[str], None] = lambda _: None

    @property
    def indexes(self) -> tuple[Index[Any, Any], ...]:
        """For whoever says how long they are kept."""
        return (self._devices,)

    def follow(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Keep up from now on, and tell `changed` the pools it matters to; the result ends that."""
        sources, self._changed = self._sources, changed
        self._stale.update(self._devices.values(), self._nodes)
        endings = (
            sources.devices.store.subscribe(self._device_changed),
            sources.inventories.store.subscribe(lambda change: self._stale.add(change.key.name)),
            sources.nodes.store.subscribe(self._node_changed),
            sources.pools.store.subscribe(self._pool_changed),
        )

        def end() -> None:
            for one in endings:
                one()

        return end

    def of(self, pool: str) -> Mapping[str, Claim]:
        """By node."""
        self.refresh()
        return self._pools.get(pool, {})

    def refresh(self) -> None:
        """Look again at what changed."""
        if not self._stale:
            return
        pools = [pooling.pool(one) for one in self._sources.pools.store]
        touched = {name for node in tuple(self._stale) for name in self._look(node, pools)}
        self._stale.clear()
        for name in touched:
            self._changed(name)

    def _look(self, node: str, pools: list[Pool]) -> set[str]:
        """The pools for which the node is another than before."""
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

    def _claims(self, node: str, pools: list[Pool]) -> dict[str, Claim]:
        found = self._sources.nodes.store.named(node)
        labels = found.metadata.labels if found is not None else {}
        inventory = self._sources.inventories.store.named(node)
        devices = sorted(self._devices.get(node), key=lambda one: one.metadata.name)
        cards = [pooling.card(one, obstacle=pooling.obstacle(one, inventory)) for one in devices]
        ways = assignment.decide(cards, labels, pools, self._approval)
        claims = {}
        for pool in pools:
            matching = sum(1 for card in cards if _counts(card, pool, labels))
            claim = Claim(matching, _candidates(node, pool.name, cards, ways), _conflicts(pool.name, ways))
            if claim != Claim():
                claims[pool.name] = claim
        return claims

    def _device_changed(self, change: Change[GPUDevice]) -> None:
        for found in (change.old, change.new):
            self._stale.update(sight.node_of_device(found) if found is not None else ())

    def _node_changed(self, change: Change[Node]) -> None:
        old = change.old.metadata.labels if change.old is not None else None
        new = change.new.metadata.labels if change.new is not None else None
        if old != new and self._devices.keys(change.key.name):
            self._stale.add(change.key.name)

    def _pool_changed(self, change: Change[GPUPool]) -> None:
        old = pooling.pool(change.old) if change.old is not None else None
        new = pooling.pool(change.new) if change.new is not None else None
        if old != new:
            self._stale.update(self._devices.values())


def _counts(card: Card, pool: Pool, labels: Mapping[str, str]) -> bool:
    return card.pool == pool.name or (not card.excluded and assignment.matches(pool, card, labels))


def _candidates(
    node: str, pool: str, cards: list[Card], ways: Mapping[str, Assignment]
) -> tuple[PoolCandidate, ...]:
    """Cards that match, or that a person gave to the pool, and do not serve it."""
    found = []
    for card in cards:
        reason = next((one.sentence for one in ways[card.id].pending if one.pool == pool), "")
        if not reason and ways[card.id].pool == pool:
            reason = f"card {card.id} joins once the ledger has withdrawn it"
        if reason and card.pool != pool:
            found.append(PoolCandidate(inventory_id=card.id, node=node, reason=reason))
    return tuple(found)


def _conflicts(pool: str, ways: Mapping[str, Assignment]) -> tuple[str, ...]:
    found = ((card, way.contested) for card, way in ways.items() if pool in way.contested)
    return tuple(assignment.contest(card, pools) for card, pools in found)
