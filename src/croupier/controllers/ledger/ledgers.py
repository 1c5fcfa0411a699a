"""Read-only ledgers of all nodes, for either capacity manager.

With the CRD capacity manager they are read from the NodeReservations. With the InMemory capacity manager,
which lives in another process, they are counted from the allocations of bound pods and the Reservations,
with the functions that also open its ledgers. Each ledger is cached until an object of its node changes.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from croupier.api.core_v1 import Node, Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, report
from croupier.api.gpu.node import AGENT_SILENT
from croupier.api.mps import NodeReservation, Reservation, translate
from croupier.api.mps.allocation import ALLOCATION
from croupier.book.listeners import Listeners
from croupier.controllers.ledger import sight
from croupier.controllers.ledger.sight import Sight
from croupier.controllers.watched import Watched
from croupier.core.ledgers import capacity, rebuild
from croupier.core.ledgers.ledger import Ledger
from croupier.core.pods import request
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.store import Change

_UNREAD: Final = object()


class Ledgers:
    def __init__(self, sight_: Sight, records: Watched[NodeReservation], clock: Clock | None = None) -> None:
        self._sight = sight_
        self._records = records
        self._clock = clock or SystemClock()
        self._known: dict[str, Ledger | None] = {}
        self._listeners = Listeners()
        sources = sight_.sources
        records.store.subscribe(lambda change: self._forget((change.key.name,)))
        sources.pods.store.subscribe(self._pod_changed)
        sources.reservations.store.subscribe(self._reservation_changed)
        sources.devices.store.subscribe(self._device_changed)
        sources.pools.store.subscribe(self._pool_changed)
        sources.nodes.store.subscribe(self._node_changed)
        sources.inventories.store.subscribe(self._inventory_changed)

    async def complete(self) -> None:
        """Wait until all caches that the ledgers are read from have synced."""
        await asyncio.gather(self._sight.complete(), self._records.cache.synced())

    def ledger(self, node: str) -> Ledger | None:
        """The ledger of a node; None if it has neither cards nor holders."""
        if self._known.get(node, _UNREAD) is _UNREAD:
            self._known[node] = self._read(node)
        return self._known[node]

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call `changed` with the node when its ledger may have changed; the result unsubscribes."""
        return self._listeners.add(changed)

    def _read(self, node: str) -> Ledger | None:
        record = self._records.store.named(node)
        read = translate.read(node, record.spec) if record is not None else self._counted(node)
        return read if read.cards else None

    def _counted(self, node: str) -> Ledger:
        live = [pod for pod in self._sight.pods_on(node) if not pod.finished]
        pledges = self._sight.pledges(node)
        grants = (*(pod.grant for pod in live), *(pledge.grant for pledge in pledges))
        in_use = (part for grant in grants for part in grant)
        cards = capacity.count(self._sight.report(node), in_use).cards
        return rebuild.rebuild(node, cards, live, pledges, self._clock.now()).ledger

    def _forget(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._known.pop(node, None)
            self._listeners.tell(node)

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = _told(change.old), _told(change.new)
        if old != new:
            self._forget({fields[0] for fields in (old, new) if fields is not None})

    def _reservation_changed(self, change: Change[Reservation]) -> None:
        versions = (change.old, change.new)
        self._forget({reservation.spec.node_name for reservation in versions if reservation is not None})

    def _device_changed(self, change: Change[GPUDevice]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or _of_card(old) != _of_card(new):
            devices = (device for device in (old, new) if device is not None)
            self._forget({node for device in devices for node in sight.node_of_device(device)})

    def _pool_changed(self, change: Change[GPUPool]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or report.pool(old) != report.pool(new):
            pools = (pool for pool in (old, new) if pool is not None)
            self._forget({node for pool in pools for node in self._sight.nodes_with(pool)})

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.status.allocatable != new.status.allocatable:
            self._forget((change.key.name,))

    def _inventory_changed(self, change: Change[GPUNodeInventory]) -> None:
        if _is_silent(change.old) != _is_silent(change.new):
            self._forget((change.key.name,))


def _told(pod: Pod | None) -> tuple[str, str, bool, str | None] | None:
    """The fields of a pod that affect a ledger; None for a pod without cards."""
    if pod is None or not pod.spec.node_name:
        return None
    allocation = pod.metadata.annotations.get(ALLOCATION)
    if allocation is None and not _asks(pod):
        return None
    return pod.spec.node_name, pod.metadata.uid, pod.is_finished, allocation


def _asks(pod: Pod) -> bool:
    return any(
        request.concerns(name)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name in (*container.resources.requests, *container.resources.limits)
    )


def _of_card(device: GPUDevice) -> tuple[object, ...]:
    return tuple(sight.node_of_device(device)), report.device(device)


def _is_silent(inventory: GPUNodeInventory | None) -> bool:
    return inventory is not None and report.holds(inventory.status.conditions, AGENT_SILENT)
