"""Read-only ledgers of all nodes, for either capacity manager.

With the CRD capacity manager they are read from the NodeReservations. With the InMemory capacity manager,
which lives in another process, they are counted from the allocations of bound pods and the Reservations,
with the functions that also open its ledgers. Each ledger is cached until an object of its node changes.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from croupier.api import meta
from croupier.api.core_v1 import Node, Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_node
from croupier.api.gpu.node import AGENT_SILENT
from croupier.api.mps import NodeReservation, Reservation, ledger_codec
from croupier.api.mps.allocation import ALLOCATION
from croupier.capacity import index_keys
from croupier.capacity.cluster_view import ClusterView
from croupier.capacity.subscribers import Subscribers
from croupier.core.claims import rebuild
from croupier.core.claims.rebuild import RebuiltLedger
from croupier.core.ledger.ledger import Ledger
from croupier.core.pods import request_parser
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.clock import Clock, SystemClock


class LedgerReader(Protocol):
    """Read access to the ledgers of nodes."""

    def ledger(self, node: str) -> Ledger | None: ...
    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]: ...


class ReadOnlyLedgers:
    def __init__(
        self, view: ClusterView, records: Informer[NodeReservation], clock: Clock | None = None
    ) -> None:
        self._view = view
        self._records = records
        self._clock = clock or SystemClock()
        self._known: dict[str, RebuiltLedger] = {}
        self._listeners = Subscribers()
        sources = view.sources
        records.store.subscribe(lambda change: self._forget((change.key.name,)))
        sources.pods.store.subscribe(self._pod_changed)
        sources.reservations.store.subscribe(self._reservation_changed)
        sources.devices.store.subscribe(self._device_changed)
        sources.pools.store.subscribe(self._pool_changed)
        sources.nodes.store.subscribe(self._node_changed)
        sources.inventories.store.subscribe(self._inventory_changed)

    async def complete(self) -> None:
        """Wait until all caches that the ledgers are read from have synced."""
        await asyncio.gather(self._view.complete(), self._records.cache.synced())

    def ledger(self, node: str) -> Ledger | None:
        """The ledger of a node; None if it has neither cards nor holders."""
        ledger = self.rebuilt(node).ledger
        return ledger if ledger.cards else None

    def rebuilt(self, node: str) -> RebuiltLedger:
        """The ledger of a node with its findings; it may be empty."""
        if (known := self._known.get(node)) is None:
            known = self._known[node] = self._read(node)
        return known

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call `changed` with the node when its ledger may have changed; the result unsubscribes."""
        return self._listeners.add(changed)

    def _read(self, node: str) -> RebuiltLedger:
        record = self._records.store.named(node)
        if record is not None:
            return RebuiltLedger(ledger_codec.decode(node, record.spec), ledger_codec.findings(record.status))
        pods, holds = self._view.pods_on(node), self._view.reservation_holds(node)
        return rebuild.rebuild(self._view.report(node), pods, holds, self._clock.now())

    def _forget(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._known.pop(node, None)
            self._listeners.notify(node)

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        old, new = _relevant_fields(change.old), _relevant_fields(change.new)
        if old != new:
            self._forget({fields[0] for fields in (old, new) if fields is not None})

    def _reservation_changed(self, change: ObjectChange[Reservation]) -> None:
        versions = (change.old, change.new)
        self._forget({reservation.spec.node_name for reservation in versions if reservation is not None})

    def _device_changed(self, change: ObjectChange[GPUDevice]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or _card_fields(old) != _card_fields(new):
            devices = (device for device in (old, new) if device is not None)
            self._forget({node for device in devices for node in index_keys.node_of_device(device)})

    def _pool_changed(self, change: ObjectChange[GPUPool]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or convert_node.pool(old) != convert_node.pool(new):
            pools = (pool for pool in (old, new) if pool is not None)
            self._forget({node for pool in pools for node in self._view.nodes_with(pool)})

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.status.allocatable != new.status.allocatable:
            self._forget((change.key.name,))

    def _inventory_changed(self, change: ObjectChange[GPUNodeInventory]) -> None:
        if _is_silent(change.old) != _is_silent(change.new):
            self._forget((change.key.name,))


def _relevant_fields(pod: Pod | None) -> tuple[str, str, bool, str | None] | None:
    """The fields of a pod that affect a ledger; None for a pod without cards."""
    if pod is None or not pod.spec.node_name:
        return None
    allocation = pod.metadata.annotations.get(ALLOCATION)
    if allocation is None and not _requests_cards(pod):
        return None
    return pod.spec.node_name, pod.metadata.uid, pod.is_finished, allocation


def _requests_cards(pod: Pod) -> bool:
    return any(
        request_parser.is_card_resource(name)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name in (*container.resources.requests, *container.resources.limits)
    )


def _card_fields(device: GPUDevice) -> tuple[object, ...]:
    return tuple(index_keys.node_of_device(device)), convert_node.device(device)


def _is_silent(inventory: GPUNodeInventory | None) -> bool:
    return inventory is not None and meta.is_true(inventory.status.conditions, AGENT_SILENT)
