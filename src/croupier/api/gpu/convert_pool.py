"""Convert GPUDevices and GPUPools to the values that `core.pools` decides about."""

from collections import Counter
from typing import Final, get_args

import msgspec

from croupier.api.gpu.device import DRAIN, IGNORE, INDEX_LABEL, OCCUPIED, OCCUPIED_REASONS, GPUDevice
from croupier.api.gpu.node import INCOMPLETE, GPUNodeInventory
from croupier.api.gpu.pool import (
    DEFAULT_ENFORCEMENT,
    DEFAULT_SLICES,
    GPUPool,
    PoolAllocation,
    ProfileCount,
    TimeSlice,
)
from croupier.api.gpu.pool_selector import DeviceFilter
from croupier.api.meta import LabelSelector, condition
from croupier.core.cards.lifecycle import Occupancy
from croupier.core.model.sharing import ReportedLayout, Sharing
from croupier.core.pods.request_parser import POOL
from croupier.core.pods.scheduler_filters import LabelRequirement
from croupier.core.pools import selection
from croupier.core.pools.admission import PoolAccess
from croupier.core.pools.assignment import ASSIGNMENT, LONG_AGO, AssignableCard, AssignmentPool
from croupier.core.pools.mig_support import MigSupport
from croupier.core.pools.selection import CardFilter, CardSelector, CardTraits, LabelMatch

READY: Final = "ReadyForPooling"
CARD_ALLOCATION: Final = "gpu.deckhouse.io/allocation"
"""The annotation with a card's own allocation while its pool changes card by card (rollout PerCard)."""


def card(device: GPUDevice, *, obstacle: str = "") -> AssignableCard:
    """The card. `obstacle` is the reason why it cannot join a pool now (see `obstacle` below)."""
    meta, status = device.metadata, device.status
    mig = status.hardware.mig if status.hardware is not None else None
    occupied = condition(status.conditions, OCCUPIED)
    return AssignableCard(
        traits=traits(device),
        annotation=meta.annotations.get(ASSIGNMENT, ""),
        pool=device.pool_name,
        obstacle=obstacle,
        excluded=meta.labels.get(IGNORE) == "true" or status.managed is False,
        drained=DRAIN in meta.annotations,
        busy=occupied is not None and occupied.status == "True",
        mig=MigSupport(
            known=mig is not None and (not mig.capable or bool(mig.types or mig.profiles_supported)),
            profiles=traits(device).profiles,
            fits=mig_capacity(device),
        ),
    )


def traits(device: GPUDevice) -> CardTraits:
    hardware, labels = device.status.hardware, device.metadata.labels
    pci = hardware.pci if hardware is not None else None
    mig = hardware.mig if hardware is not None else None
    index = labels.get(INDEX_LABEL, "")
    return CardTraits(
        id=device.card_id,
        index=int(index) if index.isascii() and index.isdigit() else None,
        pci=f"{pci.vendor}/{pci.device}" if pci is not None else "",
        labels=labels,
        product=hardware.product if hardware is not None else "",
        profiles=frozenset((*mig.profiles_supported, *(mig_type.name for mig_type in mig.types)))
        if mig
        else frozenset(),
        mig_capable=mig.capable if mig is not None else None,
    )


def obstacle(device: GPUDevice, inventory: GPUNodeInventory | None) -> str:
    """Why the card cannot join a pool now, according to its objects. Empty if it can."""
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


def pool(source: GPUPool) -> AssignmentPool:
    meta, spec = source.metadata, source.spec
    selector, joining = spec.device_selector, spec.device_assignment
    approves = joining.auto_approve_selector
    return AssignmentPool(
        name=meta.name,
        resource=resource(source),
        created=meta.creation_timestamp or LONG_AGO,
        nodes=label_selector(spec.node_selector),
        devices=CardSelector(_filter(selector.include), _filter(selector.exclude)),
        auto_assign_all=not joining.require_annotation,
        auto_assign_selector=label_selector(approves) if approves is not None else None,
        max_per_node=spec.allocation.max_devices_per_node,
        sharing=sharing(spec.allocation),
        deleting=meta.deletion_timestamp is not None,
    )


def access(source: GPUPool) -> PoolAccess:
    subjects = source.spec.access
    return PoolAccess(
        frozenset(subjects.namespaces), frozenset(subjects.service_accounts), frozenset(subjects.dex_groups)
    )


def card_allocation(device: GPUDevice) -> PoolAllocation | None:
    """The card's own allocation, which it has only during a rollout card by card."""
    annotation = device.metadata.annotations.get(CARD_ALLOCATION)
    return decode_allocation(annotation) if annotation is not None else None


def decode_allocation(text: str) -> PoolAllocation | None:
    """Decode an allocation from a ConfigMap or an annotation. None if it is invalid."""
    try:
        return msgspec.json.decode(text, type=PoolAllocation)
    except msgspec.MsgspecError:
        return None


def encode_allocation(allocation: PoolAllocation) -> str:
    return msgspec.json.encode(allocation).decode()


def resource(pool: GPUPool) -> str:
    """The extended resource that pods request."""
    return pool.spec.resource.name or f"{POOL}{pool.metadata.name}"


def label_selector(selector: LabelSelector) -> LabelMatch:
    return LabelMatch(
        selector.match_labels,
        tuple(
            LabelRequirement(expression.key, expression.operator, expression.values)
            for expression in selector.match_expressions
        ),
    )


def _filter(source: DeviceFilter) -> CardFilter:
    return CardFilter(
        ids=frozenset(source.inventory_ids),
        pci=frozenset(source.pci_ids),
        indexes=tuple(selection.parse_range(indexes) for indexes in source.indexes),
        labels=source.labels,
        products=frozenset(source.products),
        profiles=frozenset(source.mig_profiles),
        mig_capable=source.mig_capable,
    )


def sharing(allocation: PoolAllocation) -> Sharing:
    slices = allocation.time_slice.max_slices_per_device if allocation.time_slice else DEFAULT_SLICES
    return Sharing(
        allocation.mode,
        profile=allocation.mig_profile or "",
        layout=tuple(sorted((line.profile, line.count) for line in allocation.mig_layout or ())),
        slices=slices if allocation.mode == "TimeSlice" else 0,
        enforcement=(allocation.enforcement or DEFAULT_ENFORCEMENT) if allocation.mode == "MPS" else None,
    )


def allocation_for(shared: Sharing, like: PoolAllocation) -> PoolAllocation:
    """The allocation for a sharing. Fields that do not concern sharing are copied from `like`."""
    if sharing(like) == shared:
        return like
    layout = tuple(ProfileCount(profile=name, count=number) for name, number in shared.layout)
    return PoolAllocation(
        mode=shared.mode,
        mig_profile=shared.profile or None,
        mig_layout=layout or None,
        time_slice=TimeSlice(max_slices_per_device=shared.slices) if shared.slices else None,
        enforcement=shared.enforcement,
        max_devices_per_node=like.max_devices_per_node,
        rollout=like.rollout,
    )


def partitioning(device: GPUDevice) -> ReportedLayout | None:
    """The partitioning of the card. None if no agent reports it."""
    status = device.status.cut
    if status is None:
        return None
    profiles = Counter(slot.profile for slot in status.slots)
    return ReportedLayout(status.state, profiles, status.target, status.message)


def mig_capacity(device: GPUDevice) -> dict[str, int]:
    """The number of MIG devices of each profile that fit on the empty card."""
    mig = device.status.hardware.mig if device.status.hardware is not None else None
    return {mig_type.name: mig_type.count for mig_type in mig.types if mig_type.count} if mig else {}


def occupancy(device: GPUDevice) -> Occupancy:
    occupied = condition(device.status.conditions, OCCUPIED)
    if occupied is None or occupied.reason not in OCCUPIED_REASONS:
        return "Unknown"
    return next(value for value in get_args(Occupancy) if value == occupied.reason)
