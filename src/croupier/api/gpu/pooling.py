"""Cards and pools as core/pools/assignment.py decides about them, from the objects that tell it."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from croupier.api.gpu.device import ASSIGNMENT, DRAIN, IGNORE, INDEX_LABEL, OCCUPIED, GPUDevice
from croupier.api.gpu.node import GPUNodeInventory
from croupier.api.gpu.pool import (
    DEFAULT_SLICES,
    RESOURCE_PREFIX,
    Allocation,
    DeviceFilter,
    GPUPool,
    ProfileCount,
    TimeSlice,
)
from croupier.api.meta import Condition, LabelSelector
from croupier.core.pools import selection
from croupier.core.pools.assignment import LONG_AGO, Card, Pool
from croupier.core.pools.selection import Filter, Labelled, Requirement, Selector, Traits
from croupier.core.pools.sharing import Cut, Sharing

INCOMPLETE: Final = "InventoryIncomplete"
READY: Final = "ReadyForPooling"
CARD_ALLOCATION: Final = "gpu.deckhouse.io/allocation"
"""The annotation of a card that is ahead of its pool while that changes card by card (rollout PerCard)."""


def card(device: GPUDevice, *, obstacle: str = "") -> Card:
    """`obstacle`: why no pool may take it now (see `obstacle` below)."""
    meta, status = device.metadata, device.status
    mig = status.hardware.mig if status.hardware is not None else None
    occupied = condition(status.conditions, OCCUPIED)
    return Card(
        traits=traits(device),
        annotation=meta.annotations.get(ASSIGNMENT, ""),
        pool=status.pool_ref.name if status.pool_ref is not None else "",
        obstacle=obstacle,
        excluded=meta.labels.get(IGNORE) == "true" or status.managed is False,
        drained=DRAIN in meta.annotations,
        busy=occupied is not None and occupied.status == "True",
        known_profiles=mig is not None and (not mig.capable or bool(mig.types or mig.profiles_supported)),
    )


def traits(device: GPUDevice) -> Traits:
    hardware, labels = device.status.hardware, device.metadata.labels
    pci = hardware.pci if hardware is not None else None
    mig = hardware.mig if hardware is not None else None
    index = labels.get(INDEX_LABEL, "")
    return Traits(
        id=device.status.inventory_id or device.metadata.name,
        index=int(index) if index.isascii() and index.isdigit() else None,
        pci=f"{pci.vendor}/{pci.device}" if pci is not None else "",
        labels=labels,
        product=hardware.product if hardware is not None else "",
        profiles=frozenset((*mig.profiles_supported, *(one.name for one in mig.types)))
        if mig
        else frozenset(),
        mig_capable=mig.capable if mig is not None else None,
    )


def obstacle(device: GPUDevice, inventory: GPUNodeInventory | None) -> str:
    """Why no pool may take the card now, as far as what stands in its objects tells; empty if one may."""
    if inventory is None:
        return "its node has no GPUNodeInventory yet"
    incomplete = condition(inventory.status.conditions, INCOMPLETE)
    if incomplete is not None and incomplete.status == "True":
        return f"the inventory of its node is incomplete: {incomplete.message or incomplete.reason}"
    if device.status.state == "Faulted":
        health = device.status.health
        return f"it is faulted: {health.last_error}" if health and health.last_error else "it is faulted"
    ready = condition(device.status.conditions, READY)
    if ready is None:
        return "it has not been checked yet"
    return "" if ready.status == "True" else f"it is not ready for pooling: {ready.message or ready.reason}"


def condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((one for one in conditions if one.type == kind), None)


def pool(found: GPUPool) -> Pool:
    meta, spec = found.metadata, found.spec
    selector, joining = spec.device_selector, spec.device_assignment
    approves = joining.auto_approve_selector
    return Pool(
        name=meta.name,
        resource=resource(found),
        created=meta.creation_timestamp or LONG_AGO,
        nodes=labelled(spec.node_selector),
        devices=Selector(_filter(selector.include), _filter(selector.exclude)),
        takes_all=not joining.require_annotation,
        takes=labelled(approves) if approves is not None else None,
        most_per_node=spec.allocation.max_devices_per_node,
        profiles=_profiles(spec.allocation),
        leaving=meta.deletion_timestamp is not None,
    )


def allocation(device: GPUDevice, pool: GPUPool) -> Allocation:
    """How the card is shared, or shall be once it is free: its own word while it is ahead of its pool."""
    return own(device) or pool.status.allocation or pool.spec.allocation


def own(device: GPUDevice) -> Allocation | None:
    """The card's own word while it is ahead of its pool."""
    word = device.metadata.annotations.get(CARD_ALLOCATION)
    return written(word) if word is not None else None


def written(text: str) -> Allocation | None:
    """An allocation as it stands in a ConfigMap or an annotation; None for what cannot be read."""
    try:
        return msgspec.json.decode(text, type=Allocation)
    except msgspec.MsgspecError:
        return None


def text(allocation: Allocation) -> str:
    return msgspec.json.encode(allocation).decode()


def resource(found: GPUPool) -> str:
    """What pods ask for."""
    return found.spec.resource.name or f"{RESOURCE_PREFIX}{found.metadata.name}"


def labelled(selector: LabelSelector) -> Labelled:
    return Labelled(
        selector.match_labels,
        tuple(Requirement(one.key, one.operator, one.values) for one in selector.match_expressions),
    )


def _profiles(allocation: Allocation) -> frozenset[str]:
    one = (allocation.mig_profile,) if allocation.mig_profile else ()
    return frozenset((*one, *(line.profile for line in allocation.mig_layout or ())))


def _filter(asked: DeviceFilter) -> Filter:
    return Filter(
        ids=frozenset(asked.inventory_ids),
        pci=frozenset(asked.pci_ids),
        indexes=tuple(selection.span(one) for one in asked.indexes),
        labels=asked.labels,
        products=frozenset(asked.products),
        profiles=frozenset(asked.mig_profiles),
        mig_capable=asked.mig_capable,
    )


def sharing(allocation: Allocation) -> Sharing:
    slices = allocation.time_slice.max_slices_per_device if allocation.time_slice else DEFAULT_SLICES
    return Sharing(
        allocation.mode,
        profile=allocation.mig_profile or "",
        layout=tuple(sorted((one.profile, one.count) for one in allocation.mig_layout or ())),
        slices=slices if allocation.mode == "TimeSlice" else 0,
    )


def allocated(found: Sharing, like: Allocation) -> Allocation:
    """The allocation that says `found`; what is no matter of sharing is as in `like`."""
    if sharing(like) == found:
        return like
    layout = tuple(ProfileCount(profile=name, count=number) for name, number in found.layout)
    return Allocation(
        mode=found.mode,
        mig_profile=found.profile or None,
        mig_layout=layout or None,
        time_slice=TimeSlice(max_slices_per_device=found.slices) if found.slices else None,
        max_devices_per_node=like.max_devices_per_node,
        rollout=like.rollout,
    )


def cut(device: GPUDevice) -> Cut | None:
    """How the card is cut, as its agent tells; None where none does."""
    found = device.status.cut
    if found is None:
        return None
    profiles = Counter(slot.profile for slot in found.slots)
    return Cut(found.state, profiles, found.target, found.message)


def fits(device: GPUDevice) -> dict[str, int]:
    """How many of each MIG profile an empty card can have."""
    mig = device.status.hardware.mig if device.status.hardware is not None else None
    return {one.name: one.count for one in mig.types if one.count} if mig is not None else {}
