"""A snapshot of the whole cluster: nodes, cards and their holders.

Nothing is watched or written. The ledger of a node comes from its NodeReservation; nodes without one (all
nodes with the in-memory capacity manager) are counted from their cards and pods by the functions that
open ledgers.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from croupier.api import convert_pod, kinds
from croupier.api.core_v1 import Node, Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_node
from croupier.api.mps import Reservation, ledger_codec, reservation_hold
from croupier.api.mps.reservation import NO_MIRRORS
from croupier.capacity import cluster_view
from croupier.capacity.permitted_reader import PermittedReader
from croupier.core.claims import audit, holder_lifecycle, rebuild
from croupier.core.claims.audit import AuditInputs
from croupier.core.claims.rebuild import RebuiltLedger
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.reported_cards import NodeCardReport
from croupier.kube.client.api_client import Client, Selection

T = TypeVar("T")

BOUND: Final = Selection(fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
"""Pods that may be using cards."""
CLUSTER_KINDS: Final = frozenset(
    kind.plural
    for kind in (
        kinds.NODES,
        kinds.NODE_RESERVATIONS,
        kinds.GPU_DEVICES,
        kinds.GPU_NODE_INVENTORIES,
        kinds.GPU_POOLS,
    )
)
NAMESPACED_KINDS: Final = frozenset((kinds.PODS.plural, kinds.RESERVATIONS.plural))


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
    unreadable: tuple[str, ...] = ()
    """Sentences about what the user may not read."""
    incomplete: bool = False
    """The user may not read all nodes and ledgers: nothing can be said about free cards."""


async def take(
    api: Client, now: datetime, *, with_pods: bool = False, member_of: str | None = None
) -> ClusterSnapshot:
    """List everything; pods only if `with_pods` is set or a ledger depends on them.

    A ledger is counted from pods if it is not stored. In a stored ledger, pods tell which holds are Bound by
    now: their promotion is written with a delay. With `member_of`, the user may have rights in that namespace
    only: what they do not allow is left out and named in `unreadable`.
    """
    reader = PermittedReader(api, member_of)
    nodes, records, (devices, inventories), pools, reservations, bound = await asyncio.gather(
        reader.objects(kinds.NODES),
        reader.objects(kinds.NODE_RESERVATIONS),
        asyncio.gather(reader.objects(kinds.GPU_DEVICES), reader.objects(kinds.GPU_NODE_INVENTORIES)),
        reader.objects(kinds.GPU_POOLS),
        reader.objects(kinds.RESERVATIONS, Selection(labels=NO_MIRRORS)),
        reader.objects(kinds.PODS, BOUND) if with_pods else _nothing(),
    )
    recorded = frozenset(record.metadata.name for record in records)
    unrecorded = (node for node in nodes if node.metadata.name not in recorded)
    missing = _reports_with_cards(unrecorded, devices, inventories, pools)
    ledgers = {
        record.metadata.name: ledger_codec.decode(record.metadata.name, record.spec) for record in records
    }
    if bound is None:
        needed = missing or any(ledger.held for ledger in ledgers.values())
        bound = await reader.objects(kinds.PODS, BOUND) if needed else []
    ledgers = _promoted(ledgers, bound)
    findings = {record.metadata.name: ledger_codec.findings(record.status) for record in records}
    incomplete = _is_incomplete(reader.unreadable, counts=bool(missing))
    for rebuilt in _counted(() if incomplete else missing, bound, reservations, now):
        ledgers[rebuilt.ledger.node] = rebuilt.ledger
        findings[rebuilt.ledger.node] = (*rebuilt.findings, *_strangers(rebuilt.ledger, devices, bound))
    return ClusterSnapshot(
        nodes={node.metadata.name: node for node in nodes},
        ledgers=dict(sorted(ledgers.items())),
        findings={name: listed for name, listed in findings.items() if listed},
        recorded=recorded,
        reservations=tuple(reservations),
        pools=tuple(pools),
        devices=tuple(devices),
        pods={pod.metadata.key: pod for pod in bound},
        unreadable=tuple(reader.unreadable.values()),
        incomplete=incomplete,
    )


def _strangers(ledger: Ledger, devices: Iterable[GPUDevice], bound: Iterable[Pod]) -> Iterator[LedgerFinding]:
    here = [device for device in devices if device.status.node_name == ledger.node]
    if users := cluster_view.strangers(here):
        pods = {pod.metadata.key: cluster_view.brief_view(pod) for pod in bound}
        world = AuditInputs(ledger, NodeCardReport(ledger.node), pods, strangers=users)
        yield from (divergence.finding for divergence in audit.strangers(world))


def _reports_with_cards(
    nodes: Iterable[Node],
    devices: Iterable[GPUDevice],
    inventories: Iterable[GPUNodeInventory],
    pools: Sequence[GPUPool],
) -> list[NodeCardReport]:
    by_node = _grouped(devices, lambda device: device.status.node_name or "")
    by_name = {inventory.metadata.name: inventory for inventory in inventories}
    reports = (
        convert_node.node_report(name, node, by_node.get(name, ()), pools, by_name.get(name))
        for node in nodes
        if (name := node.metadata.name)
    )
    return [report for report in reports if report.devices or report.allocatable]


async def _nothing() -> None:
    return None


def _is_incomplete(unreadable: Collection[str], *, counts: bool) -> bool:
    """`counts`: ledgers are counted from pods and Reservations, so those of all namespaces are needed."""
    needed = CLUSTER_KINDS | NAMESPACED_KINDS if counts else CLUSTER_KINDS
    return not needed.isdisjoint(unreadable)


def _promoted(ledgers: Mapping[str, Ledger], bound: Iterable[Pod]) -> dict[str, Ledger]:
    """The stored ledgers, with every hold of a bound pod as Bound."""
    pods = {pod.metadata.key: convert_pod.view(pod) for pod in bound}
    return {name: holder_lifecycle.with_bound_pods(ledger, pods) for name, ledger in ledgers.items()}


def _counted(
    reports: Iterable[NodeCardReport],
    bound: Iterable[Pod],
    reservations: Iterable[Reservation],
    now: datetime,
) -> Iterator[RebuiltLedger]:
    """The ledgers of nodes without a stored ledger."""
    pods = _grouped(map(convert_pod.view, bound), lambda pod: pod.node)
    holds = _grouped(filter(None, map(reservation_hold.hold_of, reservations)), lambda hold: hold.node)
    for report in reports:
        yield rebuild.rebuild(report, pods.get(report.node, ()), holds.get(report.node, ()), now)


def _grouped(items: Iterable[T], key: Callable[[T], str]) -> Mapping[str, Sequence[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
