"""The cached view of nodes for the ledger's controllers: cards, pods and Reservations by node.

All controllers share one set of indexes, so that reading a node costs only what is on that node.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from croupier.api import convert_pod
from croupier.api.core_v1 import Node, Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_node
from croupier.api.mps import Reservation, reservation_hold
from croupier.capacity.index_keys import node_of_device, node_of_pod, pool_of_device
from croupier.core.claims.audit import AuditInputs
from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.reported_cards import NodeCardReport
from croupier.core.ledger.reservation_hold import ReservationHold
from croupier.core.model.pod_view import PodView
from croupier.kube.cache.informer import Informer
from croupier.kube.client.identity import Key


@dataclass(frozen=True, slots=True)
class LedgerInformers:
    nodes: Informer[Node]
    devices: Informer[GPUDevice]
    pools: Informer[GPUPool]
    pods: Informer[Pod]
    reservations: Informer[Reservation]
    inventories: Informer[GPUNodeInventory]


class ClusterView:
    def __init__(self, sources: LedgerInformers, *, smallest: int = 0) -> None:
        """`smallest` is the smallest share of a card without a pool; 0 if unknown."""
        self.sources = sources
        self._smallest = smallest
        self._pods = sources.pods.store.index(node_of_pod)
        self._devices = sources.devices.store.index(node_of_device)
        self._pooled = sources.devices.store.index(pool_of_device)
        self._reservations = sources.reservations.store.index(lambda item: (item.spec.node_name,))

    async def complete(self) -> None:
        """Wait until all caches have synced."""
        sources = self.sources
        cards = (sources.nodes, sources.devices, sources.pools, sources.inventories)
        users = (sources.pods, sources.reservations)
        await asyncio.gather(*(informer.cache.synced() for informer in (*cards, *users)))

    def nodes(self) -> set[str]:
        """All nodes, and the nodes of all GPUDevices."""
        return {node.metadata.name for node in self.sources.nodes.store} | set(self._devices.values())

    def node(self, name: str) -> Node | None:
        return self.sources.nodes.store.named(name)

    def nodes_with(self, pool: GPUPool) -> set[str]:
        """The nodes with cards of the pool."""
        devices = self._pooled.get(pool.metadata.name)
        return {node for device in devices for node in node_of_device(device)}

    def report(self, node: str) -> NodeCardReport:
        inventory = self.sources.inventories.store.named(node)
        devices, pools = self._devices.get(node), self.sources.pools.store
        return convert_node.node_report(
            node, self.node(node), devices, pools, inventory, smallest=self._smallest
        )

    def devices_of(self, node: str) -> list[GPUDevice]:
        return self._devices.get(node)

    def pod(self, key: str) -> Pod | None:
        """A pod by `namespace/name`."""
        namespace, _, name = key.partition("/")
        return self.sources.pods.store.get(Key(namespace, name))

    def pods_on(self, node: str) -> list[PodView]:
        return [convert_pod.view(pod) for pod in self._pods.get(node)]

    def pods_named(self, ledger: Ledger) -> dict[str, PodView]:
        """The pods of the holders by `namespace/name`, without their requests, which are slow to read."""
        keys = set(map(holder_names.pod_key, ledger.holders()))
        return {key: brief_view(pod) for key in keys if (pod := self.pod(key)) is not None}

    def reservations_on(self, node: str) -> list[Reservation]:
        return self._reservations.get(node)

    def reservation_holds(self, node: str) -> list[ReservationHold]:
        holds = (reservation_hold.hold_of(reservation) for reservation in self._reservations.get(node))
        return [hold for hold in holds if hold is not None]

    def world(self, ledger: Ledger) -> AuditInputs:
        """The inputs of an audit."""
        node = ledger.node
        reservations = self._reservations.get(node)
        return AuditInputs(
            ledger=ledger,
            report=self.report(node),
            pods={**self.pods_named(ledger), **{pod.key: pod for pod in self.pods_on(node)}},
            reservation_holds={hold.pod: hold for hold in self.reservation_holds(node)},
            reservations=frozenset(reservation.metadata.key for reservation in reservations),
            strangers=strangers(self._devices.get(node)),
        )


def strangers(devices: Iterable[GPUDevice]) -> dict[str, tuple[str, ...]]:
    """Who uses each card without holding it."""
    return {device.card_id: device.status.strangers for device in devices if device.status.strangers}


def brief_view(pod: Pod) -> PodView:
    """A view of the pod with only its node and whether it has ended."""
    return PodView(pod.metadata.key, pod.metadata.uid, pod.spec.node_name, finished=pod.is_finished)
