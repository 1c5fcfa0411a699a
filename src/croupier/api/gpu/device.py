"""GPUDevice: one object per GPU card with its hardware, its health and its pool."""

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, field

from croupier.api.meta import Conditions, MIGProfile, NodeName, ObjectMeta, ObservedGeneration
from croupier.api.wire import ATOMIC_MAP, INT32, INT64, Rule, Wire, cel_map, example, matches, rule
from croupier.api.withheld import WithheldCard
from croupier.core.cards.features import MigStrategy
from croupier.core.cards.lifecycle import STATES, CardPhase, CardState
from croupier.core.model.enforcement import Enforcer
from croupier.core.nodes.layout_plan import LayoutStepState

IGNORE: Final = "gpu.deckhouse.io/ignore"
NODE_LABEL: Final = "gpu.deckhouse.io/node"
INDEX_LABEL: Final = "gpu.deckhouse.io/device-index"
DRAIN: Final = "gpu.deckhouse.io/drain"
"""The annotation that keeps new holders off a card. Its value is the reason."""
RETIRED: Final = "gpu.deckhouse.io/retired"
"""The annotation with a person's reason to retire the card. The label IGNORE takes it out of use."""
IDLE_MARK: Final = "gpu.deckhouse.io/idle"
"""The annotation that records what was done about an idle card, and since when it was idle."""
OCCUPIED: Final = "Occupied"
"""The condition that says whether the ledger records holders of the card. Its reason is one of OCCUPANCY."""
OCCUPIED_REASONS: Final = ("Free", "Withdrawn", "Reserved", "InUse")
"""Withdrawn: the card has no holders, and the ledger allocates nothing on it."""
WITHDRAWALS: Final = ("Drained", "Retired")
"""The conditions of a card that a person drained or retired: False while pods hold it, then True."""
VANISHED: Final = "Vanished"
"""The condition of a card that has left the PCI bus. Its GPUDevice is deleted once it has no holders."""
MAX_DECLINED_MESSAGE: Final = 1024

InventoryID: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=253),
    matches("^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "must be an inventoryID, such as node-1-0000-65-00-0"),
    example("node-1-0000-65-00-0"),
]
Text: TypeAlias = Annotated[str, Meta(max_length=253)]
Count: TypeAlias = Annotated[int, Meta(ge=0), INT32]
Total: TypeAlias = Annotated[int, Meta(ge=0), INT64]
_Hex4: TypeAlias = Annotated[
    str,
    Meta(max_length=4),
    matches("^[0-9a-f]{4}$", "must be four lower-case hexadecimal digits, such as 10de"),
]


class PoolReference(Wire, frozen=True, kw_only=True):
    """The pool that a card belongs to."""

    name: Annotated[str, Meta(min_length=1, max_length=63), example("training")]
    """The name of the GPUPool."""
    resource: Annotated[Text, example("gpu.deckhouse.io/training")] = ""
    """The extended resource that pods request, gpu.deckhouse.io/<pool>."""


class DeclinedPool(Wire, frozen=True, kw_only=True):
    """The pool that the card is annotated with, and why it does not take the card."""

    name: Annotated[str, Meta(min_length=1, max_length=63), example("training")]
    """The name of the GPUPool."""
    reason: Annotated[Literal["OutOfSelector", "Declined"], example("OutOfSelector")]
    """OutOfSelector if the selectors of the pool exclude the card, else Declined."""
    message: Annotated[
        str, Meta(max_length=MAX_DECLINED_MESSAGE), example("pool training excludes the card by its index")
    ] = ""
    """A human-readable explanation of why the pool does not take the card."""


class PCI(Wire, frozen=True, kw_only=True):
    """The identity of the card on the PCI bus."""

    vendor: Annotated[_Hex4, example("10de")]
    """The PCI vendor ID in hexadecimal. NVIDIA is 10de."""
    device: Annotated[_Hex4, example("2331")]
    """The PCI device ID in hexadecimal."""
    class_: Annotated[
        _Hex4, Meta(description="The PCI class in hexadecimal. GPUs have 0300 or 0302."), example("0302")
    ] = field(name="class")
    address: Annotated[
        str,
        Meta(max_length=16),
        matches(
            "^([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]$",
            "must be a PCI address, such as 0000:65:00.0",
        ),
        example("0000:65:00.0"),
    ] = ""
    """The PCI address. Unset if the node's agent does not report it."""


class ComputeCapability(Wire, frozen=True, kw_only=True):
    """The CUDA compute capability, for example 9.0."""

    major: Annotated[Count, example(9)]
    """The major version of the compute capability."""
    minor: Annotated[Count, example(0)]
    """The minor version of the compute capability."""


class Precision(Wire, frozen=True, kw_only=True):
    """The number formats that the card supports."""

    supported: Annotated[
        tuple[Annotated[str, Meta(max_length=32)], ...], Meta(max_length=32), example(["fp32", "bf16"])
    ] = ()
    """The supported number formats."""


class PCIe(Wire, frozen=True, kw_only=True):
    """The PCIe link between the card and the host."""

    generation: Annotated[Count, example(5)] | None = None
    """The PCIe generation of the link."""
    width: Annotated[Count, example(16)] | None = None
    """The number of PCIe lanes of the link."""


class MIGPartition(Wire, frozen=True, kw_only=True):
    """The NVML identifiers of a MIG profile."""

    gpu_instance: Annotated[Count, example(19)] | None = None
    """The NVML ID of the GPU instance profile."""
    compute_instance: Annotated[Count, example(0)] | None = None
    """The NVML ID of the compute instance profile."""


class MIGEngines(Wire, frozen=True, kw_only=True):
    """The hardware engines of one MIG device."""

    copy: Annotated[Count, example(1)] = 0
    """The number of copy engines."""
    encoder: Annotated[Count, example(0)] = 0
    """The number of video encoders."""
    decoder: Annotated[Count, example(1)] = 0
    """The number of video decoders."""
    ofa: Annotated[Count, example(0)] = 0
    """The number of optical flow accelerators."""


class MIGType(Wire, frozen=True, kw_only=True):
    """A MIG profile that the card supports."""

    name: MIGProfile
    """The name of the profile."""
    count: Annotated[Count, example(7)] = 0
    """How many MIG devices of this profile fit on an empty card."""
    memory_mib: Annotated[Count, example(9856)] = 0
    """The memory of each MIG device in MiB."""
    multiprocessors: Annotated[Count, example(16)] = 0
    """The number of streaming multiprocessors of each MIG device."""
    partition: MIGPartition | None = None
    """The NVML identifiers of the profile."""
    engines: MIGEngines | None = None
    """The hardware engines of each MIG device."""


class MIG(Wire, frozen=True, kw_only=True):
    """The MIG capabilities of the card."""

    capable: bool = False
    """Whether the card supports MIG."""
    strategy: Annotated[MigStrategy, example("Mixed")] | None = None
    """How MIG resources are named on the node: None, Single or Mixed."""
    profiles_supported: Annotated[
        tuple[MIGProfile, ...], Meta(max_length=64), example(["1g.10gb", "2g.20gb"])
    ] = ()
    """The names of the supported MIG profiles."""
    types: Annotated[tuple[MIGType, ...], Meta(max_length=64)] = ()
    """Details of the supported MIG profiles."""


class Hardware(Wire, frozen=True, kw_only=True):
    """The hardware of the card."""

    uuid: Annotated[Text, example("GPU-8c2f1d3a-6e77-4d0b-9f52-0b3f5a6c7d8e")] = ""
    """The UUID that the driver reports for the card."""
    product: Annotated[Text, example("NVIDIA H100 80GB HBM3")] = ""
    """The model name of the card."""
    pci: PCI | None = None
    """The identity of the card on the PCI bus."""
    memory_mib: Annotated[Count, example(81559)] | None = None
    """The memory of the card in MiB."""
    compute_capability: ComputeCapability | None = None
    """The CUDA compute capability, for example 9.0."""
    precision: Precision | None = None
    """The number formats that the card supports."""
    numa_node: Annotated[int, Meta(ge=-1), INT32, example(0)] | None = None
    """The NUMA node that the card is attached to. The value is -1 if the host has no NUMA nodes."""
    pcie: PCIe | None = None
    """The PCIe link between the card and the host."""
    mig: MIG | None = None
    """The MIG capabilities of the card."""


class DeviceHealth(Wire, frozen=True, kw_only=True):
    """The health of the card."""

    temperature_c: Annotated[int, Meta(ge=-100, le=300), INT32, example(54)] | None = None
    """The temperature in degrees Celsius."""
    ecc_errors_total: Annotated[Total, example(0)] | None = None
    """The total number of uncorrected memory errors."""
    xid: Annotated[Count, example(79)] | None = None
    """The code of the last XID error."""
    last_updated: datetime | None = None
    """The time at which these values were last updated."""
    consecutive_healthy: Annotated[Count, example(12)] = 0
    """The number of consecutive heartbeats without a fault. A faulted card recovers after three."""
    last_error: Annotated[str, Meta(max_length=1024), example("the card fell off the bus")] = ""
    """A human-readable description of the last error."""
    last_error_reason: Annotated[str, Meta(max_length=128), example("XID79")] = ""
    """The reason of the last error as one CamelCase word."""
    last_error_time: datetime | None = None
    """The time of the last error."""
    metrics: Annotated[
        dict[str, Annotated[str, Meta(max_length=64)]], Meta(max_length=64), example({"power_watts": "412.5"})
    ] = field(default_factory=dict)
    """Sensor readings by metric name."""


class DevicePartition(Wire, frozen=True, kw_only=True):
    """One MIG device on the card."""

    id: Annotated[str, Meta(min_length=1, max_length=63), example("1g.10gb-0")]
    """The profile and the first memory slice of the MIG device."""
    profile: MIGProfile
    """The MIG profile of the MIG device."""
    start: Annotated[int, Meta(ge=0, le=7), INT32, example(0)]
    """The first memory slice that the MIG device occupies."""
    size: Annotated[int, Meta(ge=1, le=8), INT32, example(1)]
    """The number of memory slices that the MIG device occupies."""
    uuid: Annotated[Text, example("MIG-5c0b1d57-7d3c-5f2a-8a44-1f0f6d2b9e31")] = ""
    """The UUID that the driver reports for the MIG device."""


class DevicePartitioning(Wire, frozen=True, kw_only=True):
    """The current MIG partitioning of the card, as reported by the agent of its node."""

    enabled: bool = False
    """Whether MIG mode is enabled."""
    slots: Annotated[tuple[DevicePartition, ...], Meta(max_length=8)] = ()
    """The MIG devices on the card."""
    target: Annotated[str, Meta(max_length=253), example("2g.20gb:2,3g.40gb:1")] = ""
    """The requested partitioning: MIG profiles with their number, or whole. Unset if none is requested."""
    state: Annotated[LayoutStepState, example("Waiting")] = "Applied"
    """The state of a repartitioning: Applied, Waiting (for holders to leave), Changing, Failed or Drifted."""
    message: Annotated[
        str,
        Meta(max_length=1024),
        example("the layout is whole, and pool small requires 1g.10gb:7; waiting for ml/trainer-0"),
    ] = ""
    """A human-readable explanation of why the requested partitioning is not applied."""


class DeviceEnforcement(Wire, frozen=True, kw_only=True):
    """What keeps a container within its share of the card."""

    by: Annotated[Enforcer, example("HAMiCore")]
    """MIG (hardware), MPSDaemon, MPSClient, HAMiCore (a library), or None: nothing enforces shares."""
    ready: bool = True
    """Whether shares of the card can be allocated now."""
    message: Annotated[
        str,
        Meta(max_length=1024),
        example("the library libvgpu.so of HAMi-core limits each container from inside"),
    ] = ""
    """A human-readable explanation: what is enforced, or why shares are withheld."""


_STATE_OF_THIS_PHASE: Final = f"{cel_map(STATES)}[self.phase]"


class GPUDeviceStatus(Wire, frozen=True, kw_only=True):
    """The observed state of the card."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            f"!has(self.phase) || (has(self.state) && {_STATE_OF_THIS_PHASE} == self.state)",
            "state does not agree with phase",
            message_expression=f"'phase ' + self.phase + ' means state ' + {_STATE_OF_THIS_PHASE}",
        ),
        rule(
            "!has(self.state) || self.state != 'Assigned' || has(self.poolRef)",
            "a card in state Assigned must name its pool in poolRef",
        ),
    )

    node_name: NodeName | None = None
    """The name of the node that contains the card."""
    inventory_id: InventoryID | None = field(name="inventoryID", default=None)
    """Node name and PCI address. It stays the same when the driver's index or the UUID changes."""
    managed: bool | None = None
    """Whether Croupier manages the card. It is false if the node's label excludes the node."""
    auto_attach: bool | None = None
    """Whether the card joins a matching pool without the assignment annotation."""
    state: Annotated[CardState, example("Assigned")] | None = None
    """The state of the card: Unassigned, Assigned (to a pool), Reserved (for a pod) or Faulted."""
    phase: Annotated[CardPhase, example("InUse")] | None = None
    """The phase of the card, which is more detailed than the state.

    Discovered, Validating (the node is checked), Ready (matches no pool), PendingAssignment (waits for
    approval), Assigned (to a pool), Reserved (for a pod that does not run yet), InUse (by a running pod) or
    Faulted.
    """
    pool_ref: Annotated[PoolReference, ATOMIC_MAP] | None = None
    """The pool that the card belongs to."""
    declined: Annotated[DeclinedPool, ATOMIC_MAP] | None = None
    """The pool that the card is annotated with and that does not take it. The card serves as without it."""
    hardware: Annotated[Hardware, ATOMIC_MAP] | None = None
    """The hardware of the card."""
    health: Annotated[DeviceHealth, ATOMIC_MAP] | None = None
    """The health of the card."""
    cut: Annotated[DevicePartitioning, ATOMIC_MAP] | None = None
    """The current MIG partitioning of the card. Unset if the node's agent does not report it."""
    idle_since: datetime | None = None
    """Since when no holder of the card has run a process on it. Unset while it is used or has no holders."""
    strangers: Annotated[
        tuple[Annotated[str, Meta(max_length=600)], ...],
        Meta(max_length=8),
        example(["ml/trainer-0/3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11"]),
    ] = ()
    """Pods (namespace/name/UID) and processes that use the card without holding it."""
    enforcement: Annotated[DeviceEnforcement, ATOMIC_MAP] | None = None
    """What enforces shares of the card. Unset if the card is not shared or the agent does not report it."""
    observed_generation: ObservedGeneration | None = None
    """The metadata.generation that state and pool were decided from. Each condition has its own."""
    withheld: Annotated[WithheldCard, ATOMIC_MAP] | None = None
    """Why the card takes no new pods. Unset if it does."""
    conditions: Conditions = ()
    """Conditions of the card: ReadyForPooling, ManagedDisabled, Ignored, Faulted, Occupied, Drained, Retired,
    Vanished. Drained and Retired become True when no pod holds the card any more."""


class GPUDeviceSpec(Wire, frozen=True, kw_only=True):
    """Reserved for future use. It has no fields."""


class GPUDevice(Wire, frozen=True, kw_only=True):
    """One GPU card. It joins a pool through the annotation gpu.deckhouse.io/assignment=<pool>."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GPUDeviceSpec = GPUDeviceSpec()
    """Reserved for future use. It has no fields."""
    status: GPUDeviceStatus = GPUDeviceStatus()
    """The observed state of the card."""

    @property
    def node_name(self) -> str:
        """The node, from the owner while the status is not written yet; the label may be shortened."""
        owners = (owner.name for owner in self.metadata.owner_references if owner.kind == "Node")
        return self.status.node_name or next(owners, "") or self.metadata.labels.get(NODE_LABEL, "")

    @property
    def card_id(self) -> str:
        """The inventory id, or the name of an object whose status is not written yet."""
        return self.status.inventory_id or self.metadata.name

    @property
    def pool_name(self) -> str:
        return self.status.pool_ref.name if self.status.pool_ref is not None else ""
