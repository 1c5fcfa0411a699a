"""One audit on demand: everything listed once, every suspicion checked live, repaired only if asked to.

Pods are listed before the ledgers: whoever is bound in the one holds in the other, so a bind on its way is no
Ghost here. A pod that came after the list is no Leak, because each one in question is read again.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from croupier.api import kinds
from croupier.api.mps import NodeReservation
from croupier.book import snapshot
from croupier.book.crd import CRDCapacityManager
from croupier.controllers.ledger.audit import Audit
from croupier.controllers.ledger.sight import Sight, Sources
from croupier.controllers.watched import Watched
from croupier.core.ledgers.audit import Divergence
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import NotFound
from croupier.kube.events import Recorder
from croupier.kube.resource import Resource
from croupier.kube.store import Store

SEEN_FROM = (
    kinds.NODES,
    kinds.GPU_DEVICES,
    kinds.GPU_POOLS,
    kinds.PODS,
    kinds.RESERVATIONS,
    kinds.GPU_NODE_INVENTORIES,
)


@dataclass(frozen=True, slots=True)
class Checked:
    node: str
    divergence: Divergence
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Inspection:
    checked: tuple[Checked, ...] = ()
    nodes: frozenset[str] = frozenset()
    """Whose ledgers were looked at."""
    recorded: bool = True
    """There are NodeReservations; else all was counted from pods, and there is nothing to repair."""

    @property
    def left(self) -> int:
        return sum(not one.repaired for one in self.checked)


async def inspect(
    api: Client, *, node: str | None = None, fix: bool = False, clock: Clock | None = None
) -> Inspection:
    """All nodes, or one; a node that has no ledger has no findings."""
    stores = [await _listed(api, kind) for kind in SEEN_FROM]
    records: Store[NodeReservation] = await _listed(api, kinds.NODE_RESERVATIONS)
    if not len(records):
        return await _counted(api, node, clock or SystemClock())
    book = CRDCapacityManager(api, records)
    sight = Sight(Sources(*(Watched(store, _Complete()) for store in stores)))
    audit = Audit(sight, api, book=book, recorder=Recorder(api, "croupier-audit"))
    nodes = frozenset(name for name in book.nodes() if node in (None, name))
    checked = [one for name in sorted(nodes) for one in await _checked(audit, name, fix=fix)]
    await book.finish()
    return Inspection(tuple(checked), nodes)


async def _checked(audit: Audit, node: str, *, fix: bool) -> list[Checked]:
    seen = await audit.confirmed(node, audit.look(node))
    done = await audit.repair(node, seen) if fix else []
    mended = [one.repair for one in done]  # one repair may put several findings right
    return [Checked(node, one, one.repair is not None and one.repair in mended) for one in seen]


async def _counted(api: Client, node: str | None, clock: Clock) -> Inspection:
    seen = await snapshot.take(api, clock.now(), with_pods=True)
    nodes = frozenset(name for name in seen.ledgers if node in (None, name))
    checked = tuple(
        Checked(name, Divergence(finding))
        for name, findings in sorted(seen.findings.items())
        for finding in findings
        if name in nodes
    )
    return Inspection(checked, nodes, recorded=False)


async def _listed(api: Client, kind: Resource[Any]) -> Store[Any]:
    """The objects of a kind; none of one that is not installed."""
    store: Store[Any] = Store(kind)
    try:
        listing = await api.list(kind)
    except NotFound:
        return store
    for found in listing.items:
        store.put(found)
    await asyncio.sleep(0)
    return store


class _Complete:
    """A cache that was listed once."""

    async def synced(self) -> None:
        return
