"""One audit on demand: lists everything once, verifies every divergence, and repairs only with `fix`.

Pods are listed before the ledgers, so that every bound pod in the list has its hold in the ledger and a
bind in flight is no Ghost. A pod created after the list is no Leak, because each affected pod is read
again.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from croupier.api import kinds
from croupier.api.mps import NodeReservation
from croupier.capacity import snapshot
from croupier.capacity.cluster_view import ClusterView, LedgerInformers
from croupier.capacity.crd import CRDCapacityManager
from croupier.controllers.ledger.audit import Audit
from croupier.core.claims.audit import Divergence
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import Store
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Resource
from croupier.kube.controller.events import EventRecorder

INPUT_KINDS = (
    kinds.NODES,
    kinds.GPU_DEVICES,
    kinds.GPU_POOLS,
    kinds.PODS,
    kinds.RESERVATIONS,
    kinds.GPU_NODE_INVENTORIES,
)


@dataclass(frozen=True, slots=True)
class CheckedFinding:
    node: str
    divergence: Divergence
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Inspection:
    checked: tuple[CheckedFinding, ...] = ()
    nodes: frozenset[str] = frozenset()
    """The nodes whose ledgers were checked."""
    recorded: bool = True
    """There are NodeReservations. If false, the ledgers were counted from pods and cannot be repaired."""

    @property
    def left(self) -> int:
        return sum(not item.repaired for item in self.checked)


async def inspect(
    api: Client, *, node: str | None = None, fix: bool = False, clock: Clock | None = None
) -> Inspection:
    """Check all nodes, or one; a node without a ledger has no findings."""
    stores = [await _listed(api, kind) for kind in INPUT_KINDS]
    records: Store[NodeReservation] = await _listed(api, kinds.NODE_RESERVATIONS)
    if not len(records):
        return await _counted(api, node, clock or api.clock)
    manager = CRDCapacityManager(api, records)
    view = ClusterView(LedgerInformers(*(Informer(store, _AlwaysSynced()) for store in stores)))
    audit = Audit(view, api, manager=manager, recorder=EventRecorder(api, "croupier-audit"))
    nodes = frozenset(name for name in manager.nodes() if node in (None, name))
    checked = [item for name in sorted(nodes) for item in await _checked(audit, name, fix=fix)]
    await manager.finish()
    return Inspection(tuple(checked), nodes)


async def _checked(audit: Audit, node: str, *, fix: bool) -> list[CheckedFinding]:
    confirmed = await audit.confirmed(node, audit.compare(node))
    done = await audit.repair(node, confirmed) if fix else []
    repairs = [divergence.repair for divergence in done]  # one repair may resolve several findings
    return [
        CheckedFinding(node, divergence, divergence.repair is not None and divergence.repair in repairs)
        for divergence in confirmed
    ]


async def _counted(api: Client, node: str | None, clock: Clock) -> Inspection:
    counted = await snapshot.take(api, clock.now(), with_pods=True)
    nodes = frozenset(name for name in counted.ledgers if node in (None, name))
    checked = tuple(
        CheckedFinding(name, Divergence(finding))
        for name, findings in sorted(counted.findings.items())
        for finding in findings
        if name in nodes
    )
    return Inspection(checked, nodes, recorded=False)


async def _listed(api: Client, kind: Resource[Any]) -> Store[Any]:
    """The objects of a kind; a kind that is not installed has none."""
    store: Store[Any] = Store(kind)
    try:
        listing = await api.list(kind)
    except NotFound:
        return store
    for item in listing.items:
        store.put(item)
    await asyncio.sleep(0)
    return store


class _AlwaysSynced:
    """A cache that is always synced."""

    async def synced(self) -> None:
        return
