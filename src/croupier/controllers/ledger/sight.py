"""The cached view of nodes for the ledger's controllers: cards, pods and Reservations by node.

All controllers share one set of indexes, so that reading a node costs only what is on that node.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from croupier.api import pods
from croupier.api.core_v1 import Node, Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, report
from croupier.api.mps import Reservation, pledge
from croupier.controllers.watched import Watched
from croupier.core.ledgers import claim
from croupier.core.ledgers.audit import World
from croupier.core.ledgers.capacity import Report
from croupier.core.ledgers.ledger import Ledger
from croupier.core.ledgers.pledge import Pledge
from croupier.core.pods.pod import PodView
from croupier.kube.identity import Key


@dataclass(frozen=True, slots=True)
class Sources:
    nodes: Watched[Node]
    devices: Watched[GPUDevice]
    pools: Watched[GPUPool]
    pods: Watched[Pod]
    reservations: Watched[Reservation]
    inventories: Watched[GPUNodeInventory]


class Sight:
    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._pods = sources.pods.store.index(node_of_pod)
        self._devices = sources.devices.store.index(node_of_device)
        self._pooled = sources.devices.store.index(_pool_of)
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

    def report(self, node: str) -> Report:
        inventory = self.sources.inventories.store.named(node)
        devices, pools = self._devices.get(node), self.sources.pools.store
        return report.read(node, self.node(node), devices, pools, inventory)

    def devices_of(self, node: str) -> list[GPUDevice]:
        return self._devices.get(node)

    def pod(self, key: str) -> Pod | None:
        """A pod by `namespace/name`."""
        namespace, _, name = key.partition("/")
        return self.sources.pods.store.get(Key(namespace, name))

    def pods_on(self, node: str) -> list[PodView]:
        return [pods.view(pod) for pod in self._pods.get(node)]

    def pods_named(self, ledger: Ledger) -> dict[str, PodView]:
        """The pods of the holders by `namespace/name`, without their requests, which are slow to read."""
        keys = {claim.reserved_as(holder) or holder for holder in ledger.holders()}
        return {key: brief(pod) for key in keys if (pod := self.pod(key)) is not None}

    def pledges(self, node: str) -> list[Pledge]:
        holds = (pledge.read(reservation) for reservation in self._reservations.get(node))
        return [hold for hold in holds if hold is not None]

    def world(self, ledger: Ledger) -> World:
        """The inputs of an audit."""
        node = ledger.node
        reservations = self._reservations.get(node)
        return World(
            ledger=ledger,
            report=self.report(node),
            pods={**self.pods_named(ledger), **{pod.key: pod for pod in self.pods_on(node)}},
            pledges={hold.pod: hold for hold in self.pledges(node)},
            reservations=frozenset(reservation.metadata.key for reservation in reservations),
        )


def brief(pod: Pod) -> PodView:
    """A view of the pod with only its node and whether it has ended."""
    return PodView(pod.metadata.key, pod.metadata.uid, pod.spec.node_name, finished=pod.is_finished)


def node_of_pod(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def node_of_device(device: GPUDevice) -> Iterable[str]:
    return (device.status.node_name,) if device.status.node_name else ()


def _pool_of(device: GPUDevice) -> Iterable[str]:
    return (device.status.pool_ref.name,) if device.status.pool_ref is not None else ()
