"""The ledger of any node, for those who only read it, wherever it is kept.

Where the book is in the API server, it is read there. Where it is in the memory of another process, it is
counted from what that process leaves in the API server, by the same functions that open its ledgers: the
allocations of bound pods and the Reservations. Each is kept until something of its node changes.
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
        """Returns once everything that a ledger is read from has been listed."""
        await asyncio.gather(self._sight.complete(), self._records.cache.synced())

    def ledger(self, node: str) -> Ledger | None:
        """None for a node without cards and holders."""
        found = self._known.get(node, _UNREAD)
        if found is _UNREAD:
            self._known[node] = self._read(node)
        return self._known[node]

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Have `changed` told the node whenever its ledger may have changed; the result ends that."""
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
            self._forget({told[0] for told in (old, new) if told is not None})

    def _reservation_changed(self, change: Change[Reservation]) -> None:
        self._forget({one.spec.node_name for one in (change.old, change.new) if one is not None})

    def _device_changed(self, change: Change[GPUDevice]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or _of_card(old) != _of_card(new):
            found = (one for one in (old, new) if one is not None)
            self._forget({node for one in found for node in sight.node_of_device(one)})

    def _pool_changed(self, change: Change[GPUPool]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or report.pool(old) != report.pool(new):
            found = (one for one in (old, new) if one is not None)
            self._forget({node for one in found for node in self._sight.nodes_with(one)})

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.status.allocatable != new.status.allocatable:
            self._forget((change.key.name,))

    def _inventory_changed(self, change: Change[GPUNodeInventory]) -> None:
        if _is_silent(change.old) != _is_silent(change.new):
            self._forget((change.key.name,))


def _told(pod: Pod | None) -> tuple[str, str, bool, str | None] | None:
    """What of a pod a ledger is counted from; nothing of one that uses no card."""
    if pod is None or not pod.spec.node_name:
        return None
    allocation = pod.metadata.annotations.get(ALLOCATION)
    if allocation is None and not _asks(pod):
        return None
    return pod.spec.node_name, pod.metadata.uid, pod.is_finished, allocation


def _asks(pod: Pod) -> bool:
    return any(
        request.concerns(name)
        for one in (*pod.spec.containers, *pod.spec.init_containers)
        for name in (*one.resources.requests, *one.resources.limits)
    )


def _of_card(device: GPUDevice) -> tuple[object, ...]:
    return tuple(sight.node_of_device(device)), report.device(device)


def _is_silent(inventory: GPUNodeInventory | None) -> bool:
    return inventory is not None and report.holds(inventory.status.conditions, AGENT_SILENT)
