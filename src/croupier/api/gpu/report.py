"""What a node reports of its cards, from the objects that tell it."""

from collections.abc import Iterable
from typing import Final

from croupier.api.core_v1 import Node
from croupier.api.gpu import pooling
from croupier.api.gpu.device import ASSIGNMENT, DRAIN, IGNORE, INDEX_LABEL, VANISHED, Cut, GPUDevice
from croupier.api.gpu.node import AGENT_SILENT, GPUNodeInventory
from croupier.api.gpu.pool import DEFAULT_SLICES, Allocation, GPUPool
from croupier.api.meta import Condition
from croupier.core import quantity
from croupier.core.ledgers.capacity import Device, Pool, Report
from croupier.core.ledgers.ledger import Slot
from croupier.core.pods import request

MAINTENANCE: Final = "Maintenance"
MISCONFIGURED: Final = "Misconfigured"
PER_CARD: Final = "PerCard"
"""The reason of a Maintenance during which the pool's other cards serve."""

_UNFINISHED: Final = {
    "Waiting": "it waits to be cut anew",
    "Changing": "it is being cut anew",
    "Failed": "it could not be cut as it shall be",
    "Drifted": "it is not cut as it was left",
}


def read(
    name: str,
    node: Node | None,
    devices: Iterable[GPUDevice],
    pools: Iterable[GPUPool],
    inventory: GPUNodeInventory | None = None,
) -> Report:
    """`devices` are the node's own; `pools` may be all there are."""
    return Report(
        node=name,
        present=node is not None,
        allocatable=offered(node) if node is not None else {},
        devices=tuple(device(one) for one in devices),
        pools={one.metadata.name: pool(one) for one in pools},
        silent=inventory is not None and holds(inventory.status.conditions, AGENT_SILENT),
    )


def device(found: GPUDevice) -> Device:
    status, labels = found.status, found.metadata.labels
    hardware = status.hardware
    mig = hardware.mig if hardware is not None else None
    index = labels.get(INDEX_LABEL, "")
    return Device(
        id=status.inventory_id or found.metadata.name,
        index=int(index) if index.isascii() and index.isdigit() else None,
        pool=_pool(found),
        faulted=status.state == "Faulted",
        ignored=labels.get(IGNORE) == "true" or status.managed is False,
        withheld=withheld(found),
        fits={one.name: one.count for one in mig.types} if mig is not None else {},
        cut=_slots(status.cut) if status.cut is not None else None,
        ahead=_shared(own) if (own := pooling.own(found)) is not None else None,
    )


def withheld(found: GPUDevice) -> str:
    """Why the card itself is given to nobody for now, as the part of a sentence; empty if it is given."""
    annotations, cut = found.metadata.annotations, found.status.cut
    if holds(found.status.conditions, VANISHED):
        return "it is gone from its node"
    if DRAIN in annotations:
        return "it is drained"
    if cut is not None and cut.state in _UNFINISHED:
        return _UNFINISHED[cut.state]
    if cut is not None and cut.enabled and not cut.slots:
        return "its MIG mode is on and it is cut into nothing"
    serves, assigned = _pool(found), annotations.get(ASSIGNMENT, "")
    if assigned == serves:
        return ""
    return f"it leaves pool {serves}" if serves else f"it is on its way into pool {assigned}"


def _pool(found: GPUDevice) -> str:
    return found.status.pool_ref.name if found.status.pool_ref is not None else ""


def _slots(cut: Cut) -> tuple[Slot, ...]:
    return tuple(Slot(f"{one.profile}-{one.start}", one.profile, one.start, one.size) for one in cut.slots)


def pool(found: GPUPool) -> Pool:
    """As it is shared now: what its spec asks for counts once that is carried out."""
    spec, now = found.spec.allocation, found.status.allocation
    return _shared(now or spec, withheld=_pool_withheld(found))


def _shared(allocation: Allocation, *, withheld: str = "") -> Pool:
    return Pool(
        sharing=allocation.mode,
        slices=allocation.time_slice.max_slices_per_device if allocation.time_slice else DEFAULT_SLICES,
        profile=allocation.mig_profile or "",
        layout=tuple((one.profile, one.count) for one in allocation.mig_layout or ()),
        withheld=withheld,
    )


def _pool_withheld(found: GPUPool) -> str:
    for one in found.status.conditions:
        serves = one.type == MAINTENANCE and one.reason == PER_CARD
        if one.type in (MAINTENANCE, MISCONFIGURED) and one.status == "True" and not serves:
            return f"its pool is in {one.type}" if one.type == MAINTENANCE else "its pool is misconfigured"
    return ""


def holds(conditions: Iterable[Condition], kind: str) -> bool:
    return any(one.type == kind and one.status == "True" for one in conditions)


def offered(node: Node) -> dict[str, int]:
    """What of its allocatable are cards or MIG devices; what cannot be read counts as none."""
    counted = {}
    for name, written in node.status.allocatable.items():
        if name != request.GPU and request.profile(name) is None:
            continue
        try:
            counted[name] = max(0, quantity.parse(written).nanos // quantity.NANO)
        except quantity.InvalidQuantityError:
            counted[name] = 0
    return counted
