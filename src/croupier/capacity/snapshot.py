"""A snapshot of the whole cluster: nodes, cards and their holders.

Nothing is watched or written. The ledger of a node comes from its NodeReservation; nodes without one (all
nodes with the in-memory capacity manager) are counted from their cards and pods by the functions that
open ledgers.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeVar

from croupier.api import convert_pod, kinds
from croupier.api.core_v1 import Node, Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_node
from croupier.api.mps import NodeReservation, Reservation, ledger_codec, reservation_hold
from croupier.core.claims import rebuild
from croupier.core.claims.rebuild import RebuiltLedger
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.reported_cards import NodeCardReport
from croupier.kube.client.api_client import EVERYTHING, Client, Selection
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Resource

T = TypeVar("T")

BOUND: Final = Selection(fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
"""Pods that may be using cards."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    nodes: Mapping[str, Node]
    ledgers: Mapping[str, Ledger]
    """By node name, for every node with cards or holders."""
    findings: Mapping[str, tuple[LedgerFinding, ...]] = field(default_factory=dict)
    """By node name; nodes without findings are left out."""
    recorded: frozenset[str] = frozenset()
    """Nodes whose ledger is stored in the API server; the other ledgers were counted."""
    reservations: tuple[Reservation, ...] = ()
    pools: tuple[GPUPool, ...] = ()
    devices: tuple[GPUDevice, ...] = ()
    pods: Mapping[str, Pod] = field(default_factory=dict)
    """Bound, unfinished pods by `namespace/name`; empty if they were not needed."""


async def take(api: Client, now: datetime, *, with_pods: bool = False) -> ClusterSnapshot:
    """List everything; pods only if `with_pods` is set or a ledger must be counted from them."""
    nodes, records, (devices, inventories), pools, reservations, bound = await asyncio.gather(
        _all(api, kinds.NODES),
        _all(api, kinds.NODE_RESERVATIONS),
        asyncio.gather(_all(api, kinds.GPU_DEVICES), _all(api, kinds.GPU_NODE_INVENTORIES)),
        _all(api, kinds.GPU_POOLS),
        _all(api, kinds.RESERVATIONS),
        _all(api, kinds.PODS, BOUND) if with_pods else _nothing(),
    )
    world = _ClusterObjects(
        nodes={node.metadata.name: node for node in nodes},
        records={record.metadata.name: record for record in records},
        devices=_by_node(devices),
        inventories={inventory.metadata.name: inventory for inventory in inventories},
        pools=tuple(pools),
        reservations=tuple(reservations),
    )
    if bound is None:
        bound = await _all(api, kinds.PODS, BOUND) if world.unrecorded() else []
    return replace(_snapshot(world, bound, now), devices=tuple(devices))


async def _nothing() -> None:
    return None


async def _all(api: Client, resource: Resource[T], selection: Selection = EVERYTHING) -> list[T]:
    """Empty if the kind is not installed."""
    try:
        return (await api.list(resource, selection)).items
    except NotFound:
        return []


@dataclass(frozen=True, slots=True)
class _ClusterObjects:
    """The listed objects."""

    nodes: Mapping[str, Node]
    records: Mapping[str, NodeReservation]
    devices: Mapping[str, Sequence[GPUDevice]]
    inventories: Mapping[str, GPUNodeInventory]
    pools: tuple[GPUPool, ...]
    reservations: tuple[Reservation, ...]

    def unrecorded(self) -> list[str]:
        """Nodes with cards but without a stored ledger."""
        names = (name for name in self.nodes if name not in self.records)
        return [name for name in names if name in self.devices or self.report(name).allocatable]

    def report(self, name: str) -> NodeCardReport:
        devices, inventory = self.devices.get(name, ()), self.inventories.get(name)
        return convert_node.node_report(name, self.nodes.get(name), devices, self.pools, inventory)


def _snapshot(world: _ClusterObjects, bound: Sequence[Pod], now: datetime) -> ClusterSnapshot:
    ledgers = {name: ledger_codec.decode(name, record.spec) for name, record in world.records.items()}
    findings = {name: _findings(record) for name, record in world.records.items()}
    for rebuilt in _counted(world, bound, now):
        ledgers[rebuilt.ledger.node] = rebuilt.ledger
        findings[rebuilt.ledger.node] = rebuilt.findings
    return ClusterSnapshot(
        nodes=world.nodes,
        ledgers=dict(sorted(ledgers.items())),
        findings={name: listed for name, listed in findings.items() if listed},
        recorded=frozenset(world.records),
        reservations=world.reservations,
        pools=world.pools,
        pods={pod.metadata.key: pod for pod in bound},
    )


def _findings(record: NodeReservation) -> tuple[LedgerFinding, ...]:
    return tuple(
        LedgerFinding(finding.kind, finding.message, finding.card, finding.holder)
        for finding in record.status.findings
    )


def _counted(world: _ClusterObjects, bound: Sequence[Pod], now: datetime) -> Iterator[RebuiltLedger]:
    """The ledgers of nodes without a stored ledger."""
    missing = world.unrecorded()
    if not missing:
        return
    pods_by_node = _grouped((convert_pod.view(pod) for pod in bound), lambda pod: pod.node)
    holds = filter(None, map(reservation_hold.hold_of, world.reservations))
    holds_by_node = _grouped(holds, lambda hold: hold.node)
    for name in missing:
        on_node, reserved = pods_by_node.get(name, ()), holds_by_node.get(name, ())
        yield rebuild.rebuild(world.report(name), on_node, reserved, now)


def _by_node(devices: Iterable[GPUDevice]) -> Mapping[str, Sequence[GPUDevice]]:
    placed = (device for device in devices if device.status.node_name)
    return _grouped(placed, lambda device: device.status.node_name or "")


def _grouped(items: Iterable[T], key: Callable[[T], str]) -> Mapping[str, Sequence[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
