"""GPUPool: a set of cards behind one extended resource, how they are shared, and which pods may use them."""

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta

from croupier.api.gpu.device import Count, InventoryID, Text
from croupier.api.gpu.pool_selector import DeviceSelector
from croupier.api.meta import (
    DNS_LABEL,
    DNS_NAME,
    LABEL_KEY_MESSAGE,
    Conditions,
    LabelKey,
    LabelSelector,
    LabelValue,
    MIGProfile,
    ObjectMeta,
    ObservedGeneration,
)
from croupier.api.wire import ATOMIC_MAP, INT32, Rule, Wire, cel_map, cel_rules, example, matches, rule
from croupier.core.cards.lifecycle import CardState
from croupier.core.model.enforcement import Enforcement
from croupier.core.model.sharing import PoolMode
from croupier.core.pods.request_parser import POOL
from croupier.core.pools.idle import IdleAction

POOL_FINALIZER: Final = "gpupool-controller.deckhouse.io/finalizer"
CONFIRMED: Final = "gpu.deckhouse.io/confirmed"
DEFAULT_SLICES: Final = 8
DEFAULT_ENFORCEMENT: Final[Enforcement] = "MPS"
"""The enforcement of a pool in mode MPS that does not choose one."""

Unit: TypeAlias = Literal["Card", "MIG", "TimeSlice", "Percent"]

UNIT_OF_MODE: Final[dict[PoolMode, Unit]] = {
    "Exclusive": "Card",
    "MIG": "MIG",
    "TimeSlice": "TimeSlice",
    "MPS": "Percent",
}

NamespaceName: TypeAlias = Annotated[
    str, Meta(max_length=63), matches(f"^{DNS_LABEL}$", "must be the name of a namespace"), example("vision")
]
ServiceAccountKey: TypeAlias = Annotated[
    str,
    Meta(max_length=317),
    matches(f"^{DNS_LABEL}/{DNS_NAME}$", "must be namespace/name of a service account, such as ml/trainer"),
    example("ml/trainer"),
]


class PoolResource(Wire, frozen=True, kw_only=True):
    """The extended resource that pods request."""

    name: Annotated[Text, example("gpu.deckhouse.io/training")] = ""
    """The name of the resource. It must be gpu.deckhouse.io/<name of the pool>, which is the default."""
    unit: Annotated[Unit, example("Card")] | None = None
    """The unit of the resource: Card, MIG, TimeSlice or Percent. It follows from allocation.mode if unset."""
    min_percent: Annotated[int, Meta(ge=1, le=100), INT32, example(10)] | None = None
    """In mode MPS: the smallest share of a card in percent. The default is the setting sharing.minPercent."""


class ProfileCount(Wire, frozen=True, kw_only=True):
    """A number of MIG devices of one profile."""

    profile: MIGProfile
    """The MIG profile of these MIG devices."""
    count: Annotated[int, Meta(ge=1, le=7), INT32, example(2)]
    """The number of MIG devices of this profile on each card."""


class TimeSlice(Wire, frozen=True, kw_only=True):
    """Options for sharing cards by time slicing."""

    max_slices_per_device: Annotated[int, Meta(ge=1, le=64), INT32, example(4)] = DEFAULT_SLICES
    """The number of time slices of each card, and so the largest number of pods that share it."""


class PoolAllocation(Wire, frozen=True, kw_only=True):
    """How the cards of the pool are shared. Changing it puts the pool into Maintenance."""

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
        rule(
            "self.mode == 'MPS' || !has(self.enforcement) || self.enforcement == 'None'",
            "enforcement MPS and HAMiCore belong to mode MPS, whose cards are shared by percent",
        ),
    )

    mode: Annotated[PoolMode, example("Exclusive")]
    """The sharing mode: Exclusive (whole cards), MIG (MIG devices), TimeSlice, or MPS (percent of a card)."""
    mig_profile: MIGProfile | None = None
    """In mode MIG: partition every card into as many MIG devices of this profile as fit."""
    mig_layout: (
        Annotated[
            tuple[ProfileCount, ...],
            Meta(min_length=1, max_length=7),
            cel_rules(
                rule(
                    "self.all(a, self.exists_one(b, a.profile == b.profile))",
                    "a profile appears twice in migLayout",
                ),
                rule("self.map(p, p.count).sum() <= 7", "a card can have at most seven MIG devices"),
                rule(
                    "self.exists(p, !p.profile.matches('[1-7]g[.]'))"
                    " || self.map(p, p.count * int(p.profile.find('[1-7]g[.]').substring(0, 1))).sum() <= 7",
                    "the MIG devices of migLayout need more than the seven compute slices of a card",
                ),
            ),
        ]
        | None
    ) = None
    """In mode MIG: partition every card into exactly these MIG devices."""
    time_slice: TimeSlice | None = None
    """In mode TimeSlice: options for sharing cards by time slicing."""
    enforcement: Annotated[Enforcement, example("MPS")] | None = None
    """In mode MPS: what limits a container to its share. MPS (the default), HAMiCore, or None (nothing)."""
    max_devices_per_node: Annotated[int, Meta(ge=1, le=64), INT32, example(4)] | None = None
    """The largest number of cards of one node that may join the pool. No limit if unset."""
    rollout: Annotated[Literal["WholePool", "PerCard"], example("PerCard")] = "WholePool"
    """How a change is rolled out: WholePool waits until the pool is idle, PerCard changes card by card."""


class DeviceAssignment(Wire, frozen=True, kw_only=True):
    """How matching cards join the pool."""

    require_annotation: bool = True
    """Whether a card joins only after the annotation gpu.deckhouse.io/assignment is set on its GPUDevice."""
    auto_approve_selector: LabelSelector | None = None
    """Cards whose GPUDevice labels match this selector join without the annotation."""


class Access(Wire, frozen=True, kw_only=True):
    """Which pods may use the pool. A pod needs to match one entry. Without entries every pod may use it."""

    namespaces: Annotated[tuple[NamespaceName, ...], Meta(max_length=256), example(["vision", "speech"])] = ()
    """Admits pods in these namespaces."""
    service_accounts: Annotated[
        tuple[ServiceAccountKey, ...], Meta(max_length=256), example(["ml/trainer"])
    ] = ()
    """Admits pods of these service accounts, written as namespace/name."""
    dex_groups: Annotated[tuple[Text, ...], Meta(max_length=256), example(["ml-admins"])] = ()
    """Admits pods created by users of these groups. A Deployment's pods are created by a service account."""


class PoolTaint(Wire, frozen=True, kw_only=True):
    """A taint on the nodes of the pool. Pods that use the pool tolerate it."""

    key: Annotated[LabelKey, example("gpu.deckhouse.io/dedicated")]
    """The key of the taint."""
    value: Annotated[LabelValue, example("training")] = ""
    """The value of the taint."""
    effect: Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], example("NoSchedule")]
    """What happens to other pods: NoSchedule, PreferNoSchedule, or NoExecute (running ones are evicted)."""


class PoolScheduling(Wire, frozen=True, kw_only=True):
    """How pods of the pool are placed on nodes."""

    strategy: Annotated[Literal["BinPack", "Spread"], example("BinPack")] | None = None
    """BinPack fills nodes, Spread distributes pods. The default is the setting scheduling.defaultStrategy."""
    topology_key: Annotated[
        str,
        Meta(max_length=316),
        cel_rules(rule("self == '' || !format.qualifiedName().validate(self).hasValue()", LABEL_KEY_MESSAGE)),
        example("topology.kubernetes.io/zone"),
    ] = ""
    """The node label that Spread distributes pods by. The default is topology.kubernetes.io/zone."""
    taints: Annotated[
        tuple[PoolTaint, ...],
        Meta(max_length=16),
        cel_rules(
            rule(
                "self.all(a, self.exists_one(b, a.key == b.key && a.effect == b.effect))",
                "two taints have the same key and effect; a node can have only one of them",
            )
        ),
    ] = ()
    """Taints that keep other pods off the nodes of the pool."""


class PoolIdle(Wire, frozen=True, kw_only=True):
    """What happens to cards that their holders do not use. Running pods are never disturbed."""

    after: Annotated[
        str,
        Meta(max_length=7),
        matches(
            "^[1-9][0-9]{0,5}[smh]$", "must be a duration of at least one second, such as 90s, 30m or 2h"
        ),
        example("30m"),
    ]
    """How long no holder may have used a card before the action."""
    action: Annotated[IdleAction, example("Notify")] = "Notify"
    """Notify records Events on pods and pool. Drain also keeps new pods off the card until it is used."""


class GPUPoolSpec(Wire, frozen=True, kw_only=True):
    """The desired state of the pool: its cards, how they are shared, and which pods may use them."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "!has(self.resource) || !has(self.resource.unit) || "
            f"self.resource.unit == {cel_map(UNIT_OF_MODE)}[self.allocation.mode]",
            "resource.unit does not agree with allocation.mode:"
            " Exclusive counts in Card, MIG in MIG, TimeSlice in TimeSlice, MPS in Percent",
        ),
        rule(
            "!has(self.resource) || !has(self.resource.minPercent) || self.allocation.mode == 'MPS'",
            "resource.minPercent belongs to mode MPS",
        ),
        rule(
            "self.allocation.mode != 'MIG' || !has(self.deviceSelector)"
            " || !(has(self.deviceSelector.include) && has(self.deviceSelector.include.migCapable)"
            " && !self.deviceSelector.include.migCapable)"
            " && !(has(self.deviceSelector.exclude) && has(self.deviceSelector.exclude.migCapable)"
            " && self.deviceSelector.exclude.migCapable)",
            "mode MIG needs cards that support MIG, and deviceSelector.migCapable leaves none",
        ),
    )

    allocation: PoolAllocation
    """How the cards of the pool are shared. Changing it puts the pool into Maintenance."""
    resource: PoolResource = PoolResource()
    """The extended resource that pods request."""
    node_selector: LabelSelector = LabelSelector()
    """Selects the nodes whose cards may join the pool."""
    device_selector: DeviceSelector = DeviceSelector()
    """Selects the cards that may join the pool."""
    device_assignment: DeviceAssignment = DeviceAssignment()
    """How matching cards join the pool."""
    access: Access = Access()
    """Which pods may use the pool. Without entries every pod may use it."""
    scheduling: PoolScheduling = PoolScheduling()
    """How pods of the pool are placed on nodes."""
    idle: PoolIdle | None = None
    """What happens to cards that their holders do not use. Nothing if unset."""


class PoolCapacity(Wire, frozen=True, kw_only=True):
    """The capacity of the pool, counted in its unit."""

    total: Annotated[Count, example(8)]
    """The number of units of all cards in the pool."""
    used: Annotated[Count, example(3)]
    """The number of units that pods hold."""
    booked: Annotated[Count, example(1)] = 0
    """The number of units requested by pods that were admitted recently and are not bound yet."""
    available: Annotated[Count, example(4)]
    """The number of units left: total - used - booked, and at least zero."""
    per_pod: Annotated[Count, example(4)] | None = None
    """The number of units that one pod can get at most, if all cards and candidates are available. A pod gets
    all its units on one node."""
    unit: Annotated[Unit, example("Card")] | None = None
    """The unit of these numbers: Card, MIG, TimeSlice or Percent."""


class PoolNode(Wire, frozen=True, kw_only=True):
    """A node with cards of the pool."""

    name: Annotated[str, Meta(min_length=1, max_length=253), example("node-1")]
    """The name of the node."""
    total_devices: Annotated[Count, example(8)]
    """The number of the node's cards that match the pool."""
    assigned_devices: Annotated[Count, example(6)]
    """The number of the node's cards that are in the pool."""
    health: Annotated[Text, example("Healthy")] = ""
    """A short description of the node's health."""
    last_event: Annotated[str, Meta(max_length=1024), example("assigned node-1-0000-65-00-0")] = ""
    """The last event on the node that concerns the pool."""


class PoolCandidate(Wire, frozen=True, kw_only=True):
    """A card that matches the pool and has not joined it."""

    inventory_id: InventoryID
    """The inventoryID of the card."""
    node: Annotated[Text, example("node-1")] = ""
    """The name of the card's node."""
    reason: Annotated[
        str, Meta(max_length=1024), example("an older pool has the same resource gpu.deckhouse.io/training")
    ] = ""
    """A human-readable explanation of why the card has not joined."""


class PoolDevice(Wire, frozen=True, kw_only=True):
    """A card in the pool."""

    inventory_id: InventoryID
    """The inventoryID of the card."""
    node: Annotated[Text, example("node-1")] = ""
    """The name of the card's node."""
    state: Annotated[CardState, example("Assigned")] | None = None
    """The state of the card's GPUDevice: Unassigned, Assigned, Reserved or Faulted."""


class GPUPoolStatus(Wire, frozen=True, kw_only=True):
    """The observed state of the pool."""

    allocation: Annotated[PoolAllocation, ATOMIC_MAP] | None = None
    """How the cards are shared now. It equals spec.allocation after a change has been rolled out."""
    capacity: Annotated[PoolCapacity, ATOMIC_MAP] | None = None
    """The capacity of the pool. Unset until it is counted for the first time."""
    nodes: Annotated[tuple[PoolNode, ...], Meta(max_length=5000)] = ()
    """The nodes with cards of the pool."""
    candidates: Annotated[tuple[PoolCandidate, ...], Meta(max_length=5000)] = ()
    """The cards that match the pool and have not joined it."""
    devices: Annotated[tuple[PoolDevice, ...], Meta(max_length=5000)] = ()
    """The cards in the pool."""
    observed_generation: ObservedGeneration | None = None
    """The metadata.generation that the status was computed from.

    If it is smaller than metadata.generation, the status describes an older spec.
    """
    conditions: Conditions = ()
    """Conditions: Available, Configured, Maintenance, Misconfigured, CapacityLow, AccessUnresolved."""


class GPUPool(Wire, frozen=True, kw_only=True):
    """A set of GPU cards that pods use through one extended resource, gpu.deckhouse.io/<pool>."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "size(self.metadata.name) <= 63",
            "the name of a pool is part of a resource name and can have at most 63 characters",
        ),
        rule(
            "!has(self.spec.resource) || !has(self.spec.resource.name)"
            f" || self.spec.resource.name == '{POOL}' + self.metadata.name",
            "resource.name must be gpu.deckhouse.io/<name of the pool>, or be left out",
            message_expression=(f"'resource.name must be {POOL}' + self.metadata.name + ', or be left out'"),
        ),
    )

    spec: GPUPoolSpec
    """The desired state of the pool: its cards, how they are shared, and which pods may use them."""
    metadata: ObjectMeta = ObjectMeta()
    status: GPUPoolStatus = GPUPoolStatus()
    """The observed state of the pool."""
