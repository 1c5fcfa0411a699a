"""GPUDevice: one per PCI device; what it is, how it fares, and which pool it serves."""

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, field

from croupier.api.meta import Conditions, MIGProfile, NodeName, ObjectMeta
from croupier.api.wire import ATOMIC_MAP, INT32, INT64, Rule, Wire, matches, rule, table

ASSIGNMENT: Final = "gpu.deckhouse.io/assignment"
IGNORE: Final = "gpu.deckhouse.io/ignore"
NODE_LABEL: Final = "gpu.deckhouse.io/node"
INDEX_LABEL: Final = "gpu.deckhouse.io/device-index"
DRAIN: Final = "gpu.deckhouse.io/drain"
"""The annotation that keeps new holders off a card; its value says why."""
OCCUPIED: Final = "Occupied"
"""The condition the ledger keeps: who holds the card. `reason` is one of the four below."""
OCCUPANCY: Final = ("Free", "Withdrawn", "Reserved", "InUse")
"""Withdrawn: nobody holds anything of it, and the ledger gives it to nobody."""
VANISHED: Final = "Vanished"
"""The condition of a card that is gone from the bus; its GPUDevice goes once nobody holds anything of it."""

DeviceState: TypeAlias = Literal["Unassigned", "Reserved", "Assigned", "Faulted"]
DevicePhase: TypeAlias = Literal[
    "Discovered", "Validating", "Ready", "PendingAssignment", "Assigned", "Reserved", "InUse", "Faulted"
]
MIGStrategy: TypeAlias = Literal["None", "Single", "Mixed"]
CutState: TypeAlias = Literal["Applied", "Waiting", "Changing", "Failed", "Drifted"]

STATE_OF_PHASE: Final[dict[DevicePhase, DeviceState]] = {
    "Discovered": "Unassigned",
    "Validating": "Unassigned",
    "Ready": "Unassigned",
    "PendingAssignment": "Unassigned",
    "Assigned": "Assigned",
    "Reserved": "Reserved",
    "InUse": "Reserved",
    "Faulted": "Faulted",
}

InventoryID: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=253),
    matches("^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "must be an inventoryID, such as node-1-0000-65-00-0"),
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
    """The pool a card serves."""

    name: Annotated[str, Meta(min_length=1, max_length=63)]
    """Name of the GPUPool."""
    resource: Text = ""
    """The resource pods ask for, gpu.deckhouse.io/<pool>."""


class PCI(Wire, frozen=True, kw_only=True):
    """The device on the PCI bus."""

    vendor: _Hex4
    """Vendor, 10de for NVIDIA."""
    device: _Hex4
    """Device, such as 2331."""
    class_: Annotated[_Hex4, Meta(description="Class, 0300 or 0302 for GPUs.")] = field(name="class")
    address: Annotated[
        str,
        Meta(max_length=16),
        matches(
            "^([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]$",
            "must be a PCI address, such as 0000:65:00.0",
        ),
    ] = ""
    """Where it is, such as 0000:65:00.0; unset where nobody tells."""


class ComputeCapability(Wire, frozen=True, kw_only=True):
    """CUDA compute capability."""

    major: Count
    """Major number."""
    minor: Count
    """Minor number."""


class Precision(Wire, frozen=True, kw_only=True):
    """Number formats."""

    supported: Annotated[tuple[Annotated[str, Meta(max_length=32)], ...], Meta(max_length=32)] = ()
    """Formats the card computes in, such as fp32 or bf16."""


class PCIe(Wire, frozen=True, kw_only=True):
    """The link to the host."""

    generation: Count | None = None
    """PCIe generation."""
    width: Count | None = None
    """Lanes."""


class MIGPartition(Wire, frozen=True, kw_only=True):
    """What NVML calls the parts."""

    gpu_instance: Count | None = None
    """GPU instance profile."""
    compute_instance: Count | None = None
    """Compute instance profile."""


class MIGEngines(Wire, frozen=True, kw_only=True):
    """Engines of one MIG device."""

    copy: Count = 0
    """Copy engines."""
    encoder: Count = 0
    """Video encoders."""
    decoder: Count = 0
    """Video decoders."""
    ofa: Count = 0
    """Optical flow accelerators."""


class MIGType(Wire, frozen=True, kw_only=True):
    """A kind of MIG device the card can be cut into."""

    name: MIGProfile
    """The profile."""
    count: Count = 0
    """How many fit on an otherwise empty card."""
    memory_mib: Count = 0
    """Memory of each, in MiB."""
    multiprocessors: Count = 0
    """Streaming multiprocessors of each."""
    partition: MIGPartition | None = None
    """How NVML names it."""
    engines: MIGEngines | None = None
    """Engines of each."""


class MIG(Wire, frozen=True, kw_only=True):
    """Whether and how the card can be cut."""

    capable: bool = False
    """Whether it can be cut at all."""
    strategy: MIGStrategy | None = None
    """How resources are named: None, Single or Mixed."""
    profiles_supported: Annotated[tuple[MIGProfile, ...], Meta(max_length=64)] = ()
    """Profiles it can be cut into."""
    types: Annotated[tuple[MIGType, ...], Meta(max_length=64)] = ()
    """Details of those profiles."""


class Hardware(Wire, frozen=True, kw_only=True):
    """What the card is."""

    uuid: Text = ""
    """The driver's UUID."""
    product: Text = ""
    """Model name."""
    pci: PCI | None = None
    """The device on the PCI bus."""
    memory_mib: Count | None = None
    """Memory in MiB."""
    compute_capability: ComputeCapability | None = None
    """CUDA compute capability."""
    precision: Precision | None = None
    """Number formats."""
    numa_node: Annotated[int, Meta(ge=-1), INT32] | None = None
    """NUMA node it is attached to; -1 when the host has none."""
    pcie: PCIe | None = None
    """The link to the host."""
    mig: MIG | None = None
    """Whether and how the card can be cut."""


class Health(Wire, frozen=True, kw_only=True):
    """How the card fares."""

    temperature_c: Annotated[int, Meta(ge=-100, le=300), INT32] | None = None
    """Temperature in degrees Celsius."""
    ecc_errors_total: Total | None = None
    """Uncorrected memory errors so far."""
    xid: Count | None = None
    """The last XID error."""
    last_updated: datetime | None = None
    """When these were read."""
    consecutive_healthy: Count = 0
    """Clean heartbeats in a row; a faulted card needs three."""
    last_error: Annotated[str, Meta(max_length=1024)] = ""
    """The last error, in a sentence."""
    last_error_reason: Annotated[str, Meta(max_length=128)] = ""
    """The last error, in one word."""
    last_error_time: datetime | None = None
    """When the last error happened."""
    metrics: Annotated[dict[str, Annotated[str, Meta(max_length=64)]], Meta(max_length=64)] = field(
        default_factory=dict
    )
    """Readings by name."""


class CutSlot(Wire, frozen=True, kw_only=True):
    """One MIG device that the card is cut into."""

    id: Annotated[str, Meta(min_length=1, max_length=63)]
    """Profile and first memory slice, such as 1g.10gb-0."""
    profile: MIGProfile
    """Its profile."""
    start: Annotated[int, Meta(ge=0, le=7), INT32]
    """The first memory slice it occupies."""
    size: Annotated[int, Meta(ge=1, le=8), INT32]
    """How many memory slices it occupies."""
    uuid: Text = ""
    """The driver's UUID."""


class Cut(Wire, frozen=True, kw_only=True):
    """How the card is cut now, as the agent of its node sees it."""

    enabled: bool = False
    """Whether MIG mode is on."""
    slots: Annotated[tuple[CutSlot, ...], Meta(max_length=8)] = ()
    """The MIG devices there are."""
    target: Annotated[str, Meta(max_length=253)] = ""
    """How it shall be cut, such as 2g.20gb:2,3g.30gb:1; whole, or unset when nobody asks for anything."""
    state: CutState = "Applied"
    """Applied, or how far the change is: Waiting for its holders, Changing, Failed, Drifted."""
    message: Annotated[str, Meta(max_length=1024)] = ""
    """Why it is not cut as it shall be, in a sentence."""


_MEANT: Final = f"{table(STATE_OF_PHASE)}[self.phase]"


class GPUDeviceStatus(Wire, frozen=True, kw_only=True):
    """All that is known of the card."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            f"!has(self.phase) || (has(self.state) && {_MEANT} == self.state)",
            "state does not agree with phase",
            says=f"'phase ' + self.phase + ' means state ' + {_MEANT}",
        ),
        rule(
            "!has(self.state) || self.state != 'Assigned' || has(self.poolRef)",
            "an assigned card names its pool in poolRef",
        ),
    )

    node_name: NodeName | None = None
    """The node it is in."""
    inventory_id: InventoryID | None = field(name="inventoryID", default=None)
    """Node and PCI address; stable when index or UUID change."""
    managed: bool | None = None
    """Whether we manage it; false when the node's label says so."""
    auto_attach: bool | None = None
    """Whether it joins a matching pool without a person's annotation."""
    state: DeviceState | None = None
    """The contract: Unassigned, Assigned (to a pool), Reserved (for a pod), Faulted."""
    phase: DevicePhase | None = None
    """The same, finer."""
    pool_ref: Annotated[PoolReference, ATOMIC_MAP] | None = None
    """The pool it serves."""
    hardware: Annotated[Hardware, ATOMIC_MAP] | None = None
    """What it is."""
    health: Annotated[Health, ATOMIC_MAP] | None = None
    """How it fares."""
    cut: Annotated[Cut, ATOMIC_MAP] | None = None
    """How it is cut now; unset where nobody tells."""
    conditions: Conditions = ()
    """ReadyForPooling, ManagedDisabled, Ignored, Faulted, Occupied, Vanished."""


class GPUDeviceSpec(Wire, frozen=True, kw_only=True):
    """Reserved; nothing is asked of a card here."""


class GPUDevice(Wire, frozen=True, kw_only=True):
    """One GPU card. It joins a pool by the annotation gpu.deckhouse.io/assignment=<pool>."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GPUDeviceSpec = GPUDeviceSpec()
    """Reserved."""
    status: GPUDeviceStatus = GPUDeviceStatus()
    """All that is known of the card."""
