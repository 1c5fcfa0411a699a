"""What the objects of the cluster tell of a node's cards and of Reservations, as the core reads it."""

from collections.abc import Iterable, Mapping
from typing import Final

from croupier.api.core_v1 import Node, ResourceList
from croupier.api.gpu import GPUDevice, GPUPool
from croupier.api.gpu.device import IGNORE, INDEX_LABEL, NODE_LABEL
from croupier.api.gpu.pool import DEFAULT_SLICES
from croupier.api.mps import Reservation
from croupier.core import quantity, request
from croupier.core.capacity import Device, Pool, Report
from croupier.core.ledger import Part
from croupier.core.pledge import Pledge

_LARGEST: Final = 1 << 20
"""No node has more of any device; a larger number is somebody's mistake."""


def of_node(name: str, node: Node | None, devices: Iterable[GPUDevice], pools: Mapping[str, Pool]) -> Report:
    """Everything known of the cards of one node; `devices` are those of this node."""
    return Report(
        node=name,
        present=node is not None,
        allocatable=counts(node.status.allocatable) if node is not None else {},
        devices=tuple(device(one) for one in devices),
        pools=pools,
    )


def counts(allocatable: ResourceList) -> dict[str, int]:
    """How many cards and MIG devices the usual device plugin offers."""
    found = {}
    for name, written in allocatable.items():
        if name != request.GPU and not name.startswith(request.MIG):
            continue
        try:
            amount = quantity.parse(written).whole
        except quantity.InvalidQuantityError:
            continue
        if 0 < amount <= _LARGEST:
            found[name] = amount
    return found


def device(one: GPUDevice) -> Device:
    status = one.status
    mig = status.hardware.mig if status.hardware is not None else None
    return Device(
        id=status.inventory_id or one.metadata.name,
        index=_index(one.metadata.labels.get(INDEX_LABEL, "")),
        pool=status.pool_ref.name if status.pool_ref is not None else "",
        faulted=status.state == "Faulted",
        ignored=status.managed is False or one.metadata.labels.get(IGNORE) == "true",
        fits={type_.name: type_.count for type_ in mig.types} if mig is not None else {},
    )


def _index(written: str) -> int | None:
    return int(written) if written.isascii() and written.isdigit() and len(written) <= 3 else None


def home(one: GPUDevice) -> str:
    """The node a card is in."""
    return one.status.node_name or one.metadata.labels.get(NODE_LABEL, "")


def pools(found: Iterable[GPUPool]) -> dict[str, Pool]:
    """How the cards of each pool are shared, by the pool's name."""
    return {one.metadata.name: pool(one) for one in found}


def pool(one: GPUPool) -> Pool:
    allocation = one.spec.allocation
    return Pool(
        sharing=allocation.mode,
        slices=allocation.time_slice.max_slices_per_device if allocation.time_slice else DEFAULT_SLICES,
        profile=allocation.mig_profile or "",
        layout=tuple((entry.profile, entry.count) for entry in allocation.mig_layout or ()),
    )


def pledge(one: Reservation) -> Pledge | None:
    """What a Reservation holds by its own status; nothing unless it is Reserved, for a pod beside it."""
    status, spec = one.status, one.spec
    namespace = spec.pod_key.partition("/")[0]
    if status.phase != "Reserved" or not status.cards or namespace != one.metadata.namespace:
        return None
    return Pledge(
        name=one.metadata.name,
        pod=spec.pod_key,
        node=spec.node_name,
        grant=tuple(Part(card.id, card.percent) for card in status.cards),
        since=status.last_update_time or one.metadata.creation_timestamp,
        ttl=spec.ttl_seconds,
    )
