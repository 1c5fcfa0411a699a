"""The cluster in memory: informers keep it current, and what changed becomes rows.

A change of an object marks the node, pool, pod or Reservation that it concerns. `update` recomputes only the
marked ones, so that a change costs the same on one node and on a thousand.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from croupier.api.core_v1 import Lease, Node, Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_pool
from croupier.api.mps import NodeReservation, Reservation
from croupier.capacity import index_keys
from croupier.capacity.cluster_view import ClusterView, LedgerInformers
from croupier.capacity.read_only_ledgers import ReadOnlyLedgers
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.ledger.ledger import Ledger
from croupier.core.pools.assignment import Approval
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.identity import Key
from croupier.ui import rows
from croupier.ui.market_rows import MarketRows
from croupier.ui.offers import Offers
from croupier.ui.rows import NodeObjects
from croupier.ui.tables import Tables
from croupier.ui.waiting import WaitingPods

MAX_OFFERS: Final = 64
"""Nodes whose offers are computed in one update: a change of a pool concerns all nodes."""
COUNTED_FROM: Final = frozenset(("NodeReservation", "Reservation", "Pod", "Node", "GPUDevice", "GPUPool"))
"""The kinds that a ledger without NodeReservation is counted from."""


@dataclass(frozen=True, slots=True)
class WorldInformers:
    cluster: LedgerInformers
    records: Informer[NodeReservation]
    pending: Informer[Pod]
    leases: Informer[Lease]


@dataclass(frozen=True, slots=True)
class _Shown:
    """The rows of a node that were put."""

    cards: frozenset[str] = frozenset()
    holders: frozenset[str] = frozenset()


class World:
    def __init__(
        self,
        sources: WorldInformers,
        tables: Tables,
        *,
        approval: Approval | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.tables = tables
        self.sources = sources
        self.clock = clock or SystemClock()
        self.changed = asyncio.Event()
        self.view = ClusterView(sources.cluster)
        self.ledgers = ReadOnlyLedgers(self.view, sources.records, self.clock)
        self.offers = Offers(self.view, approval or Approval())
        reserved = sources.cluster.reservations.store.index(lambda item: (item.spec.pod_key,))
        self.waiting = WaitingPods(self, tables, lambda pod: bool(reserved.keys(pod)))
        self.market = MarketRows(sources.leases.store, tables, self.clock)
        self.version = 0
        """Counts the changes that concern cards, nodes or ledgers."""
        self._nodes: set[str] = set()
        self._pools: set[str] = set()
        self._reservations: set[Key] = set()
        self._shown: dict[str, _Shown] = {}
        self._forbidden: frozenset[str] = frozenset()
        self._snapshot: tuple[int, ClusterSnapshot] | None = None
        self._subscribe()

    def _subscribe(self) -> None:
        seen = self.sources.cluster
        self.ledgers.subscribe(self._mark_node)
        seen.nodes.store.subscribe(self._node_changed)
        seen.devices.store.subscribe(self._device_changed)
        seen.inventories.store.subscribe(self._inventory_changed)
        seen.pools.store.subscribe(self._pool_changed)
        seen.reservations.store.subscribe(self._reservation_changed)
        self.sources.pending.store.subscribe(self._pending_changed)
        self.sources.leases.store.subscribe(self._lease_changed)

    def forbid(self, kinds: frozenset[str]) -> None:
        """Kinds that cannot be read: what depends on them is unknown, not empty."""
        if kinds != self._forbidden:
            self._forbidden = kinds
            for name in self.view.nodes():
                self._mark_node(name)

    # --- questions

    def pod(self, namespace: str, name: str) -> Pod | None:
        stores = (self.sources.cluster.pods.store, self.sources.pending.store)
        return next((pod for store in stores if (pod := store.named(name, namespace)) is not None), None)

    def pending_pods(self) -> Iterable[Pod]:
        """Pods that ask for cards and have no node."""
        return self.waiting.pods()

    def device(self, name: str) -> GPUDevice | None:
        return self.sources.cluster.devices.store.named(name)

    def pool(self, name: str) -> GPUPool | None:
        return self.sources.cluster.pools.store.named(name)

    def inventory(self, node: str) -> GPUNodeInventory | None:
        return self.sources.cluster.inventories.store.named(node)

    def ledger(self, node: str) -> Ledger | None:
        """The ledger of a node; None if it has none, or if it cannot be known."""
        return self.ledgers.ledger(node) if self._is_known(node) else None

    def _is_known(self, node: str) -> bool:
        """A stored ledger is complete; a counted one needs everything that it is counted from."""
        if not self._forbidden:
            return True
        return self.sources.records.store.named(node) is not None or not self._forbidden & COUNTED_FROM

    @property
    def recorded(self) -> bool:
        """Whether ledgers are stored in NodeReservations."""
        return len(self.sources.records.store) > 0

    def snapshot(self) -> ClusterSnapshot:
        if self._snapshot is None or self._snapshot[0] != self.version:
            self._snapshot = self.version, self._take()
        return self._snapshot[1]

    def _take(self) -> ClusterSnapshot:
        seen, records = self.sources.cluster, self.sources.records.store
        names = sorted({record.metadata.name for record in records} | self.view.nodes())
        rebuilt = {name: self.ledgers.rebuilt(name) for name in names}
        return ClusterSnapshot(
            nodes={node.metadata.name: node for node in _sorted(seen.nodes.store)},
            ledgers={
                name: found.ledger
                for name, found in rebuilt.items()
                if (found.ledger.cards and self._is_known(name)) or records.named(name) is not None
            },
            findings={name: found.findings for name, found in rebuilt.items() if found.findings},
            recorded=frozenset(record.metadata.name for record in records),
            reservations=tuple(_sorted(seen.reservations.store)),
            pools=tuple(_sorted(seen.pools.store)),
            devices=tuple(_sorted(seen.devices.store)),
            pods={pod.metadata.key: pod for pod in seen.pods.store if not pod.is_finished},
        )

    # --- rows

    def update(self) -> None:
        """Put the rows of everything that changed; the caller flushes the tables."""
        self.changed.clear()
        self._nodes |= self.offers.refresh(MAX_OFFERS)
        nodes, self._nodes = self._nodes, set()
        objects = [self.objects(name) for name in nodes]
        for seen in objects:
            self._reservations.update(_key(item) for item in self.view.reservations_on(seen.name))
        self._put_nodes(objects)
        for name in _taken(self._pools):
            pool = self.pool(name)
            self.tables.put("pools", name, rows.pool(pool) if pool is not None else None)
        for key in _taken(self._reservations):
            self._put_reservation(key)
        self.waiting.update()
        self.market.update()
        if self.offers.stale or self.waiting.changed:
            self.changed.set()

    def objects(self, name: str) -> NodeObjects:
        return NodeObjects(
            name,
            self.view.node(name),
            self.inventory(name),
            self.view.devices_of(name),
            self.ledger(name),
            recorded=self.sources.records.store.named(name) is not None,
            offers=self.offers.of(name),
        )

    def _put_nodes(self, objects: list[NodeObjects]) -> None:
        cards = {seen.name: rows.cards(seen, partial(self.tables.number, seen.name)) for seen in objects}
        for name, found in cards.items():  # all removals first: a card may have moved to another node
            for card in self._shown.get(name, _Shown()).cards - found.keys():
                self.tables.put("cards", card, None)
        for seen in objects:
            self._put_node(seen, cards[seen.name])

    def _put_node(self, seen: NodeObjects, cards: dict[str, rows.Row]) -> None:
        put, name = self.tables.put, seen.name
        holders = frozenset(seen.ledger.holders()) if seen.ledger is not None else frozenset()
        found = self.ledgers.rebuilt(name).findings
        for card, row in cards.items():
            put("cards", card, row)
        for holder in self._shown.get(name, _Shown()).holders - holders:
            put("holders", str(self.tables.number(name, holder)), None)
            self.tables.retire(name, holder)
        for holder in holders:
            if seen.ledger is not None:
                put("holders", str(self.tables.number(name, holder)), rows.holder(holder, seen.ledger))
        put("nodes", name, rows.node(seen) if cards else None)
        put("findings", name, rows.findings(found) if found else None)
        if cards:
            self._shown[name] = _Shown(frozenset(cards), holders)
        else:
            self._shown.pop(name, None)

    def _put_reservation(self, key: Key) -> None:
        reservation = self.sources.cluster.reservations.store.get(key)
        if reservation is None:
            self.tables.put("reservations", f"{key.namespace}/{key.name}", None)
            return
        ledger = self.ledger(reservation.spec.node_name)
        self.tables.put("reservations", reservation.metadata.key, rows.reservation(reservation, ledger))

    # --- marks

    def _mark(self) -> None:
        self.version += 1
        self.changed.set()

    def _mark_node(self, name: str) -> None:
        self._nodes.add(name)
        self._mark()

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        old, new = change.old, change.new
        if (
            old is not None
            and new is not None
            and (old.metadata.labels, old.spec)
            == (
                new.metadata.labels,
                new.spec,
            )
        ):
            return
        self._mark_node(change.key.name)
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self.offers.mark(change.key.name)

    def _device_changed(self, change: ObjectChange[GPUDevice]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _card_fields(old) == _card_fields(new):
            return
        for device in (old, new):
            for node in index_keys.node_of_device(device) if device is not None else ():
                self.offers.mark(node)
                self._mark_node(node)

    def _inventory_changed(self, change: ObjectChange[GPUNodeInventory]) -> None:
        if _node_fields(change.old) != _node_fields(change.new):
            self.offers.mark(change.key.name)
            self._mark_node(change.key.name)

    def _pool_changed(self, change: ObjectChange[GPUPool]) -> None:
        old = convert_pool.pool(change.old) if change.old is not None else None
        new = convert_pool.pool(change.new) if change.new is not None else None
        if old != new:
            self.offers.pools_changed()
        self._pools.add(change.key.name)
        self._mark()

    def _reservation_changed(self, change: ObjectChange[Reservation]) -> None:
        self._reservations.add(change.key)
        self._mark()

    def _pending_changed(self, change: ObjectChange[Pod]) -> None:
        if self.waiting.mark(change):
            self.changed.set()

    def _lease_changed(self, change: ObjectChange[Lease]) -> None:
        self.market.mark(change)
        self.changed.set()


def _card_fields(device: GPUDevice) -> tuple[Any, ...]:
    """The fields that rows and offers depend on: not the readings of sensors."""
    status, metadata = device.status, device.metadata
    parts = (status.node_name, status.managed, status.state, status.pool_ref, status.hardware, status.cut)
    return (*parts, metadata.labels, metadata.annotations, status.conditions, rows.reason(device))


def _node_fields(inventory: GPUNodeInventory | None) -> tuple[Any, ...] | None:
    if inventory is None:
        return None
    return inventory.status.conditions, inventory.status.bootstrap.phase


def _key(reservation: Reservation) -> Key:
    return Key(reservation.metadata.namespace, reservation.metadata.name)


def _taken(marked: set[Any]) -> list[Any]:
    taken = list(marked)
    marked.clear()
    return taken


def _sorted(items: Iterable[Any]) -> list[Any]:
    return sorted(items, key=lambda item: item.metadata.key)
