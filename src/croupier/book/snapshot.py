"""The whole cluster at one moment, for somebody who asks once: nodes, cards, and who holds what.

Nothing is watched, kept or written. A node that has a NodeReservation is shown as that says; the
others, all of them where the book is kept in memory, are counted from their cards and their pods,
by the same functions that open their ledgers.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeVar

from croupier.api import kinds, pods
from croupier.api.core_v1 import Node, Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, report
from croupier.api.mps import NodeReservation, Reservation, pledge, translate
from croupier.core.ledgers import capacity, rebuild
from croupier.core.ledgers.capacity import Report
from croupier.core.ledgers.finding import Finding
from croupier.core.ledgers.ledger import Ledger
from croupier.core.ledgers.rebuild import Rebuilt
from croupier.kube.client import EVERYTHING, Client, Selection
from croupier.kube.errors import NotFound
from croupier.kube.resource import Resource

T = TypeVar("T")

BOUND: Final = Selection(fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
"""Pods that may be using cards."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    nodes: Mapping[str, Node]
    ledgers: Mapping[str, Ledger]
    """Of every node that has cards, or holders, by its name."""
    findings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    """What does not fit together, by node; nodes without findings are left out."""
    recorded: frozenset[str] = frozenset()
    """Nodes whose ledger stands in the API server; the others were counted just now."""
    reservations: tuple[Reservation, ...] = ()
    pools: tuple[GPUPool, ...] = ()
    devices: tuple[GPUDevice, ...] = ()
    pods: Mapping[str, Pod] = field(default_factory=dict)
    """Pods that are bound and have not finished, by `namespace/name`; empty if nothing needed them."""


async def take(api: Client, now: datetime, *, with_pods: bool = False) -> Snapshot:
    """Everything but pods at once; pods if they are asked for, or a ledger has to be counted from them."""
    nodes, records, (devices, inventories), pools, reservations, bound = await asyncio.gather(
        _all(api, kinds.NODES),
        _all(api, kinds.NODE_RESERVATIONS),
        asyncio.gather(_all(api, kinds.GPU_DEVICES), _all(api, kinds.GPU_NODE_INVENTORIES)),
        _all(api, kinds.GPU_POOLS),
        _all(api, kinds.RESERVATIONS),
        _all(api, kinds.PODS, BOUND) if with_pods else _none(),
    )
    world = _World(
        nodes={node.metadata.name: node for node in nodes},
        records={one.metadata.name: one for one in records},
        devices=_by_node(devices),
        inventories={one.metadata.name: one for one in inventories},
        pools=tuple(pools),
        reservations=tuple(reservations),
    )
    if bound is None:
        bound = await _all(api, kinds.PODS, BOUND) if world.unrecorded() else []
    return replace(_snapshot(world, bound, now), devices=tuple(devices))


async def _none() -> None:
    return None


async def _all(api: Client, resource: Resource[T], selection: Selection = EVERYTHING) -> list[T]:
    """None of a kind that is not installed."""
    try:
        return (await api.list(resource, selection)).items
    except NotFound:
        return []


@dataclass(frozen=True, slots=True)
class _World:
    """What was listed, before anything follows from it."""

    nodes: Mapping[str, Node]
    records: Mapping[str, NodeReservation]
    devices: Mapping[str, Sequence[GPUDevice]]
    inventories: Mapping[str, GPUNodeInventory]
    pools: tuple[GPUPool, ...]
    reservations: tuple[Reservation, ...]

    def unrecorded(self) -> list[str]:
        """Nodes with cards whose ledger stands nowhere."""
        names = (name for name in self.nodes if name not in self.records)
        return [name for name in names if name in self.devices or self.report(name).allocatable]

    def report(self, name: str) -> Report:
        devices, inventory = self.devices.get(name, ()), self.inventories.get(name)
        return report.read(name, self.nodes.get(name), devices, self.pools, inventory)


def _snapshot(world: _World, bound: Sequence[Pod], now: datetime) -> Snapshot:
    ledgers = {name: translate.read(name, one.spec) for name, one in world.records.items()}
    findings = {name: _findings(one) for name, one in world.records.items()}
    for rebuilt in _counted(world, bound, now):
        ledgers[rebuilt.ledger.node] = rebuilt.ledger
        findings[rebuilt.ledger.node] = rebuilt.findings
    return Snapshot(
        nodes=world.nodes,
        ledgers=dict(sorted(ledgers.items())),
        findings={name: found for name, found in findings.items() if found},
        recorded=frozenset(world.records),
        reservations=world.reservations,
        pools=world.pools,
        pods={pod.metadata.key: pod for pod in bound},
    )


def _findings(record: NodeReservation) -> tuple[Finding, ...]:
    return tuple(Finding(one.kind, one.message, one.card, one.holder) for one in record.status.findings)


def _counted(world: _World, bound: Sequence[Pod], now: datetime) -> Iterator[Rebuilt]:
    """The ledgers that are recorded nowhere."""
    missing = world.unrecorded()
    if not missing:
        return
    there = _grouped((pods.view(pod) for pod in bound), lambda pod: pod.node)
    pledges = filter(None, map(pledge.read, world.reservations))
    promised = _grouped(pledges, lambda one: one.node)
    for name in missing:
        using = there.get(name, ())
        in_use = [part for pod in using for part in pod.grant]
        cards = capacity.count(world.report(name), in_use).cards
        yield rebuild.rebuild(name, cards, using, promised.get(name, ()), now)


def _by_node(devices: Iterable[GPUDevice]) -> Mapping[str, Sequence[GPUDevice]]:
    placed = (device for device in devices if device.status.node_name)
    return _grouped(placed, lambda device: device.status.node_name or "")


def _grouped(items: Iterable[T], key: Callable[[T], str]) -> Mapping[str, Sequence[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
