"""GPUNodeInventory: one per node with cards; what is in it and whether it is fit to serve."""

from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from croupier.api.gpu.device import Count, DeviceState, InventoryID, Text
from croupier.api.meta import Conditions, ObjectMeta
from croupier.api.wire import ATOMIC_MAP, Wire

INCOMPLETE: Final = "InventoryIncomplete"
"""The condition of a node whose cards are not fully known: none of them joins a pool."""
MANAGED_DISABLED: Final = "ManagedDisabled"
AGENT_SILENT: Final = "AgentSilent"
"""The condition of a node whose agent is not heard any more: its cards are given to nobody."""

BootstrapPhase: TypeAlias = Literal[
    "Disabled", "Validating", "ValidatingFailed", "GFD", "Monitoring", "Ready"
]
PendingReason: TypeAlias = Literal["AwaitingApproval", "NoPoolMatched", "OutOfSelector", "Declined"]


class InventoryDevice(Wire, frozen=True, kw_only=True):
    """One card of the node."""

    inventory_id: InventoryID
    """Its inventoryID, which is also the name of its GPUDevice."""
    index: Count | None = None
    """The number the driver gives it."""
    product: Text = ""
    """Model name."""
    memory_mib: Count | None = None
    """Memory in MiB."""
    state: DeviceState | None = None
    """The state of its GPUDevice."""


class NodeHardware(Wire, frozen=True, kw_only=True):
    """The cards of the node."""

    present: bool = False
    """Whether it has any."""
    devices: Annotated[tuple[InventoryDevice, ...], Meta(max_length=64)] = ()
    """The cards, sorted by inventoryID."""


class Driver(Wire, frozen=True, kw_only=True):
    """The driver of the node."""

    version: Text = ""
    """Version of the driver."""
    cuda_version: Text = ""
    """The newest CUDA it supports."""
    toolkit_installed: bool = False
    """Whether containers can reach the cards."""


class Monitoring(Wire, frozen=True, kw_only=True):
    """Whether the cards' health is known."""

    dcgm_ready: bool = False
    """Whether the DCGM exporter answers."""
    last_heartbeat: datetime | None = None
    """When it last answered."""
    consecutive_heartbeats: Count = 0
    """Good answers in a row; three make a node ready."""


class BootstrapWorkload(Wire, frozen=True, kw_only=True):
    """A service pod that prepares the node."""

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    """Name of the workload."""
    ready: bool = False
    """Whether it is ready."""
    message: Annotated[str, Meta(max_length=1024)] = ""
    """Why not, in a sentence."""


class Bootstrap(Wire, frozen=True, kw_only=True):
    """How far the node's preparation is."""

    phase: BootstrapPhase | None = None
    """The step it is in."""
    gfd_ready: bool = False
    """Whether GPU feature discovery is ready."""
    toolkit_ready: bool = False
    """Whether the container toolkit is ready."""
    last_run: datetime | None = None
    """When it was last looked at."""
    workloads: Annotated[tuple[BootstrapWorkload, ...], Meta(max_length=32)] = ()
    """The service pods that prepare the node."""


class AssignedPool(Wire, frozen=True, kw_only=True):
    """A pool that some of the node's cards serve."""

    name: Annotated[str, Meta(min_length=1, max_length=63)]
    """Name of the GPUPool."""
    resource: Text = ""
    """The resource pods ask for."""
    slots_reserved: Count = 0
    """Units of it held on this node."""
    since: datetime | None = None
    """Since when."""


class PendingPool(Wire, frozen=True, kw_only=True):
    """Cards that wait for a pool, and what for."""

    pool: Annotated[str, Meta(max_length=63)] = ""
    """The pool that would take them; unset when none matches."""
    auto_approved: bool = False
    """Whether they join without a person."""
    reason: PendingReason
    """What they wait for."""
    annotation_hint: Text = ""
    """The annotation a person would set."""


class NodePools(Wire, frozen=True, kw_only=True):
    """The pools of the node's cards."""

    assigned: Annotated[tuple[AssignedPool, ...], Meta(max_length=64)] = ()
    """Pools that its cards serve."""
    pending: Annotated[tuple[PendingPool, ...], Meta(max_length=64)] = ()
    """What its other cards wait for."""


class GPUNodeInventoryStatus(Wire, frozen=True, kw_only=True):
    """All that is known of the node's cards."""

    hw: Annotated[NodeHardware, ATOMIC_MAP] = NodeHardware()
    """The cards."""
    driver: Annotated[Driver, ATOMIC_MAP] = Driver()
    """The driver."""
    monitoring: Annotated[Monitoring, ATOMIC_MAP] = Monitoring()
    """Whether the cards' health is known."""
    bootstrap: Annotated[Bootstrap, ATOMIC_MAP] = Bootstrap()
    """How far the preparation is."""
    pools: Annotated[NodePools, ATOMIC_MAP] = NodePools()
    """The pools of the cards."""
    conditions: Conditions = ()
    """InventoryIncomplete, DriverMissing, ToolkitMissing, MonitoringMissing, ReadyForPooling and others."""


class GPUNodeInventory(Wire, frozen=True, kw_only=True):
    """The cards of one node, named like it."""

    metadata: ObjectMeta = ObjectMeta()
    status: GPUNodeInventoryStatus = GPUNodeInventoryStatus()
    """All that is known of the node's cards."""
