"""What the controllers of the ledger see of a node: its cards, its pods, the Reservations for it.

One set of indexes serves all of them, so that a look at a node costs what is on that node.
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
        self._reservations = sources.reservations.store.index(lambda found: (found.spec.node_name,))

    async def complete(self) -> None:
        """Returns once every store has had its first whole list."""
        sources = self.sources
        cards = (sources.nodes, sources.devices, sources.pools, sources.inventories)
        users = (sources.pods, sources.reservations)
        await asyncio.gather(*(one.cache.synced() for one in (*cards, *users)))

    def nodes(self) -> set[str]:
        """Nodes there are, and nodes somebody reports cards of."""
        return {node.metadata.name for node in self.sources.nodes.store} | set(self._devices.values())

    def node(self, name: str) -> Node | None:
        return self.sources.nodes.store.named(name)

    def nodes_with(self, pool: GPUPool) -> set[str]:
        """Nodes with cards of the pool."""
        devices = self._pooled.get(pool.metadata.name)
        return {node for device in devices for node in node_of_device(device)}

    def report(self, node: str) -> Report:
        inventory = self.sources.inventories.store.named(node)
        devices, pools = self._devices.get(node), self.sources.pools.store
        return report.read(node, self.node(node), devices, pools, inventory)

    def devices_of(self, node: str) -> list[GPUDevice]:
        return self._devices.get(node)

    def pod(self, key: str) -> Pod | None:
        """By `namespace/name`."""
        namespace, _, name = key.partition("/")
        return self.sources.pods.store.get(Key(namespace, name))

    def pods_on(self, node: str) -> list[PodView]:
        return [pods.view(pod) for pod in self._pods.get(node)]

    def pods_named(self, ledger: Ledger) -> dict[str, PodView]:
        """The pods that holders name, by `namespace/name`; without what they ask for, which costs to read."""
        keys = {claim.reserved_as(holder) or holder for holder in ledger.holders()}
        return {key: brief(pod) for key in keys if (pod := self.pod(key)) is not None}

    def pledges(self, node: str) -> list[Pledge]:
        return [one for found in self._reservations.get(node) if (one := pledge.read(found)) is not None]

    def world(self, ledger: Ledger) -> World:
        """All that an audit compares."""
        node = ledger.node
        reservations = self._reservations.get(node)
        return World(
            ledger=ledger,
            report=self.report(node),
            pods={**self.pods_named(ledger), **{pod.key: pod for pod in self.pods_on(node)}},
            pledges={one.pod: one for one in self.pledges(node)},
            reservations=frozenset(found.metadata.key for found in reservations),
        )


def brief(pod: Pod) -> PodView:
    """Where it is and whether it has ended."""
    return PodView(pod.metadata.key, pod.metadata.uid, pod.spec.node_name, finished=pod.is_finished)


def node_of_pod(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def node_of_device(device: GPUDevice) -> Iterable[str]:
    return (device.status.node_name,) if device.status.node_name else ()


def _pool_of(device: GPUDevice) -> Iterable[str]:
    return (device.status.pool_ref.name,) if device.status.pool_ref is not None else ()
