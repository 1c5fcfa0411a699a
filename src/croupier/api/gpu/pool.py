"""GPUPool: which cards serve together, how they are shared, and who may use them."""

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, field

from croupier.api.gpu.device import Count, DeviceState, InventoryID, Text
from croupier.api.meta import DNS_LABEL, DNS_NAME, Conditions, Labels, LabelSelector, MIGProfile, ObjectMeta
from croupier.api.wire import ATOMIC_MAP, INT32, Rule, Wire, checked, matches, rule, table

POOL_FINALIZER: Final = "gpupool-controller.deckhouse.io/finalizer"
CONFIRMED: Final = "gpu.deckhouse.io/confirmed"
RESOURCE_PREFIX: Final = "gpu.deckhouse.io/"
DEFAULT_SLICES: Final = 8

AllocationMode: TypeAlias = Literal["Exclusive", "MIG", "TimeSlice", "MPS"]
Unit: TypeAlias = Literal["Card", "MIG", "TimeSlice", "Percent"]

UNIT_OF_MODE: Final[dict[AllocationMode, Unit]] = {
    "Exclusive": "Card",
    "MIG": "MIG",
    "TimeSlice": "TimeSlice",
    "MPS": "Percent",
}

PCIID: TypeAlias = Annotated[
    str,
    Meta(max_length=9),
    matches(
        "^[0-9a-f]{4}/[0-9a-f]{4}$", "must be vendor/device in lower-case hexadecimal, such as 10de/2331"
    ),
]
IndexRange: TypeAlias = Annotated[
    str,
    Meta(max_length=7),
    checked(
        rule(
            "self.matches('^[0-9]{1,3}(-[0-9]{1,3})?$')"
            " && int(self.split('-')[0]) <= int(self.split('-')[size(self.split('-')) - 1])",
            "must be a card's index or a rising range of them, such as 3 or 0-1",
        )
    ),
]
NamespaceName: TypeAlias = Annotated[
    str, Meta(max_length=63), matches(f"^{DNS_LABEL}$", "must be the name of a namespace")
]
ServiceAccountKey: TypeAlias = Annotated[
    str,
    Meta(max_length=317),
    matches(f"^{DNS_LABEL}/{DNS_NAME}$", "must be namespace/name of a service account, such as ml/trainer"),
]


class PoolResource(Wire, frozen=True, kw_only=True):
    """What pods ask for."""

    name: Text = ""
    """The resource, gpu.deckhouse.io/<name of the pool>; derived when unset."""
    unit: Unit | None = None
    """What one unit of it is; follows from allocation.mode when unset."""


class DeviceFilter(Wire, frozen=True, kw_only=True):
    """Cards by what they are."""

    inventory_ids: Annotated[tuple[InventoryID, ...], Meta(max_length=256)] = ()
    """Cards by their inventoryID."""
    pci_ids: Annotated[tuple[PCIID, ...], Meta(max_length=64)] = ()
    """Cards by PCI vendor and device, such as 10de/2331."""
    indexes: Annotated[tuple[IndexRange, ...], Meta(max_length=64)] = ()
    """Cards by their number on the node: 3, or 0-1."""
    labels: Annotated[Labels, Meta(max_length=64)] = field(default_factory=dict)
    """Cards by labels of their GPUDevice."""
    products: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    """Cards by model name."""
    mig_profiles: Annotated[tuple[MIGProfile, ...], Meta(max_length=64)] = ()
    """Cards that can be cut into all of these profiles."""
    mig_capable: bool | None = None
    """Cards that can, or cannot, be cut."""


class DeviceSelector(Wire, frozen=True, kw_only=True):
    """Which cards may join: included by all fields that are set, and excluded by none."""

    include: DeviceFilter = DeviceFilter()
    """Every field that is set must match; nothing set matches all cards."""
    exclude: DeviceFilter = DeviceFilter()
    """One matching field keeps a card out, whatever include says."""


class ProfileCount(Wire, frozen=True, kw_only=True):
    """So many MIG devices of one profile."""

    profile: MIGProfile
    """The profile."""
    count: Annotated[int, Meta(ge=1, le=7), INT32]
    """How many of it on each card."""


class TimeSlice(Wire, frozen=True, kw_only=True):
    """How cards are shared by time."""

    max_slices_per_device: Annotated[int, Meta(ge=1, le=64), INT32] = DEFAULT_SLICES
    """How many pods share one card."""


class Allocation(Wire, frozen=True, kw_only=True):
    """How the pool's cards are shared. Changing it puts the pool into Maintenance."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "self.mode != 'MIG' || has(self.migProfile) != has(self.migLayout)",
            "mode MIG needs either migProfile or migLayout, and not both",
        ),
        rule(
            "self.mode == 'MIG' || (!has(self.migProfile) && !has(self.migLayout))",
            "migProfile and migLayout belong to mode MIG",
        ),
        rule("self.mode == 'TimeSlice' || !has(self.timeSlice)", "timeSlice belongs to mode TimeSlice"),
    )

    mode: AllocationMode
    """Whole cards, MIG devices, time slices, or percent by MPS."""
    mig_profile: MIGProfile | None = None
    """Cut every card into as many of this profile as fit."""
    mig_layout: (
        Annotated[
            tuple[ProfileCount, ...],
            Meta(min_length=1, max_length=7),
            checked(
                rule(
                    "self.all(a, self.exists_one(b, a.profile == b.profile))",
                    "a profile appears twice in migLayout",
                ),
                rule("self.map(p, p.count).sum() <= 7", "a card is cut into seven MIG devices at most"),
            ),
        ]
        | None
    ) = None
    """Cut every card into these."""
    time_slice: TimeSlice | None = None
    """How cards are shared by time."""
    max_devices_per_node: Annotated[int, Meta(ge=1, le=64), INT32] | None = None
    """Take so many cards of one node at most."""
    rollout: Literal["WholePool", "PerCard"] = "WholePool"
    """How a change is carried out: after the whole pool is idle, or card by card while the others serve."""


class DeviceAssignment(Wire, frozen=True, kw_only=True):
    """How matching cards join."""

    require_annotation: bool = True
    """Whether a person must set gpu.deckhouse.io/assignment on each card."""
    auto_approve_selector: LabelSelector | None = None
    """Cards that join without a person, by labels of their GPUDevice."""


class Access(Wire, frozen=True, kw_only=True):
    """Who may use the pool: any entry admits; no entry at all admits everyone."""

    namespaces: Annotated[tuple[NamespaceName, ...], Meta(max_length=256)] = ()
    """Pods of these namespaces."""
    service_accounts: Annotated[tuple[ServiceAccountKey, ...], Meta(max_length=256)] = ()
    """Pods of these service accounts, as namespace/name."""
    dex_groups: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    """Pods created by a user of these groups; a Deployment or Job creates its pods as a service account."""


class PoolTaint(Wire, frozen=True, kw_only=True):
    """A taint on the nodes of the pool, which its pods tolerate."""

    key: Annotated[str, Meta(min_length=1, max_length=316)]
    """The taint's key."""
    value: Annotated[str, Meta(max_length=63)] = ""
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What it does to pods that do not tolerate it."""


class Scheduling(Wire, frozen=True, kw_only=True):
    """Where the pool's pods go."""

    strategy: Literal["BinPack", "Spread"] | None = None
    """Fill nodes, or spread over them; the setting scheduling.defaultStrategy when unset."""
    topology_key: Annotated[str, Meta(max_length=316)] = ""
    """What Spread spreads over; topology.kubernetes.io/zone when unset."""
    taints: Annotated[tuple[PoolTaint, ...], Meta(max_length=16)] = ()
    """Taints that keep other pods off the pool's nodes."""


class GPUPoolSpec(Wire, frozen=True, kw_only=True):
    """Which cards, how shared, for whom."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "!has(self.resource) || !has(self.resource.unit) || "
            f"self.resource.unit == {table(UNIT_OF_MODE)}[self.allocation.mode]",
            "resource.unit does not agree with allocation.mode:"
            " Exclusive counts in Card, MIG in MIG, TimeSlice in TimeSlice, MPS in Percent",
        ),
    )

    allocation: Allocation
    """How the cards are shared."""
    resource: PoolResource = PoolResource()
    """What pods ask for."""
    node_selector: LabelSelector = LabelSelector()
    """Nodes whose cards may join."""
    device_selector: DeviceSelector = DeviceSelector()
    """Cards that may join."""
    device_assignment: DeviceAssignment = DeviceAssignment()
    """How they join."""
    access: Access = Access()
    """Who may use the pool."""
    scheduling: Scheduling = Scheduling()
    """Where its pods go."""


class PoolCapacity(Wire, frozen=True, kw_only=True):
    """What the pool can give, in its unit."""

    total: Count
    """All of it."""
    used: Count
    """What holders have."""
    booked: Count = 0
    """What pods admitted a short while ago and not bound yet ask for."""
    available: Count
    """What is left: total - used - booked, never below zero."""
    unit: Unit | None = None
    """What is counted."""


class PoolNode(Wire, frozen=True, kw_only=True):
    """A node with cards of the pool."""

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    """Name of the node."""
    total_devices: Count
    """Its cards that match the pool."""
    assigned_devices: Count
    """Its cards that serve the pool."""
    health: Text = ""
    """How it fares."""
    last_event: Annotated[str, Meta(max_length=1024)] = ""
    """What last happened there."""


class PoolCandidate(Wire, frozen=True, kw_only=True):
    """A card that matches the pool and does not serve it."""

    inventory_id: InventoryID
    """The card."""
    node: Text = ""
    """Its node."""
    reason: Annotated[str, Meta(max_length=1024)] = ""
    """What it waits for."""


class PoolDevice(Wire, frozen=True, kw_only=True):
    """A card that serves the pool."""

    inventory_id: InventoryID
    """The card."""
    node: Text = ""
    """Its node."""
    state: DeviceState | None = None
    """Its state."""


class GPUPoolStatus(Wire, frozen=True, kw_only=True):
    """How the pool fares."""

    allocation: Annotated[Allocation, ATOMIC_MAP] | None = None
    """How its cards are shared now: spec.allocation, once a change of that is carried out."""
    capacity: Annotated[PoolCapacity, ATOMIC_MAP] | None = None
    """What it can give; unset until it was first counted."""
    nodes: Annotated[tuple[PoolNode, ...], Meta(max_length=5000)] = ()
    """Nodes with cards of the pool."""
    candidates: Annotated[tuple[PoolCandidate, ...], Meta(max_length=5000)] = ()
    """Cards that match and do not serve yet."""
    devices: Annotated[tuple[PoolDevice, ...], Meta(max_length=5000)] = ()
    """Cards that serve."""
    conditions: Conditions = ()
    """Available, Configured, Maintenance, Misconfigured, CapacityLow."""


class GPUPool(Wire, frozen=True, kw_only=True):
    """Cards that serve together under one resource name, gpu.deckhouse.io/<pool>."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "size(self.metadata.name) <= 63",
            "the name of a pool is part of a resource name and has at most 63 characters",
        ),
        rule(
            "!has(self.spec.resource) || !has(self.spec.resource.name)"
            f" || self.spec.resource.name == '{RESOURCE_PREFIX}' + self.metadata.name",
            "resource.name must be gpu.deckhouse.io/<name of the pool>, or be left out",
            says=f"'resource.name must be {RESOURCE_PREFIX}' + self.metadata.name + ', or be left out'",
        ),
    )

    spec: GPUPoolSpec
    """Which cards, how shared, for whom."""
    metadata: ObjectMeta = ObjectMeta()
    status: GPUPoolStatus = GPUPoolStatus()
    """How the pool fares."""
