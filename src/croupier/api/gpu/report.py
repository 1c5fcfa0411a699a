"""What a node reports of its cards, from the objects that tell it."""

from collections.abc import Iterable

from croupier.api.core_v1 import Node
from croupier.api.gpu.device import IGNORE, INDEX_LABEL, GPUDevice
from croupier.api.gpu.pool import DEFAULT_SLICES, GPUPool
from croupier.core import quantity, request
from croupier.core.capacity import Device, Pool, Report


def read(name: str, node: Node | None, devices: Iterable[GPUDevice], pools: Iterable[GPUPool]) -> Report:
    """`devices` are the node's own; `pools` may be all there are."""
    return Report(
        node=name,
        present=node is not None,
        allocatable=_counted(node) if node is not None else {},
        devices=tuple(device(one) for one in devices),
        pools={one.metadata.name: pool(one) for one in pools},
    )


def device(found: GPUDevice) -> Device:
    status, labels = found.status, found.metadata.labels
    hardware = status.hardware
    mig = hardware.mig if hardware is not None else None
    index = labels.get(INDEX_LABEL, "")
    return Device(
        id=status.inventory_id or found.metadata.name,
        index=int(index) if index.isascii() and index.isdigit() else None,
        pool=status.pool_ref.name if status.pool_ref is not None else "",
        faulted=status.state == "Faulted",
        ignored=labels.get(IGNORE) == "true" or status.managed is False,
        fits={one.name: one.count for one in mig.types} if mig is not None else {},
    )


def pool(found: GPUPool) -> Pool:
    allocation = found.spec.allocation
    return Pool(
        sharing=allocation.mode,
        slices=allocation.time_slice.max_slices_per_device if allocation.time_slice else DEFAULT_SLICES,
        profile=allocation.mig_profile or "",
        layout=tuple((one.profile, one.count) for one in allocation.mig_layout or ()),
    )


def _counted(node: Node) -> dict[str, int]:
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
