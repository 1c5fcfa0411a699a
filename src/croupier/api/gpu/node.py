"""GPUNodeInventory: one object per node with its GPU cards, its driver, and whether they are usable."""

from datetime import datetime
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from croupier.api.gpu.device import Count, InventoryID, Text
from croupier.api.meta import Conditions, ObjectMeta, ObservedGeneration
from croupier.api.wire import ATOMIC_MAP, Wire, example
from croupier.core.cards.lifecycle import CardState
from croupier.core.nodes.bootstrap import BootstrapPhase
from croupier.core.pools.assignment import PendingReason

INCOMPLETE: Final = "InventoryIncomplete"
"""The condition of a node whose cards are not fully known. None of its cards joins a pool."""
MANAGED_DISABLED: Final = "ManagedDisabled"
AGENT_SILENT: Final = "AgentSilent"
"""The condition of a node whose agent stopped sending heartbeats. Its cards are not allocated."""


class InventoryDevice(Wire, frozen=True, kw_only=True):
    """One card of the node."""

    inventory_id: InventoryID
    """The inventoryID of the card, which is also the name of its GPUDevice."""
    index: Annotated[Count, example(0)] | None = None
    """The index of the card on the node, as numbered by the driver."""
    product: Annotated[Text, example("NVIDIA H100 80GB HBM3")] = ""
    """The model name of the card."""
    memory_mib: Annotated[Count, example(81559)] | None = None
    """The memory of the card in MiB."""
    state: Annotated[CardState, example("Assigned")] | None = None
    """The state of the card's GPUDevice: Unassigned, Assigned, Reserved or Faulted."""


class NodeHardware(Wire, frozen=True, kw_only=True):
    """The GPU cards of the node."""

    present: bool = False
    """Whether the node has GPU cards."""
    devices: Annotated[tuple[InventoryDevice, ...], Meta(max_length=64)] = ()
    """The cards, sorted by inventoryID."""


class Driver(Wire, frozen=True, kw_only=True):
    """The NVIDIA driver of the node."""

    version: Annotated[Text, example("570.86.15")] = ""
    """The version of the driver."""
    cuda_version: Annotated[Text, example("12.8")] = ""
    """The newest CUDA version that the driver supports."""
    toolkit_installed: bool = False
    """Whether the container toolkit is installed, so that containers can use the cards."""


class Monitoring(Wire, frozen=True, kw_only=True):
    """The monitoring of the cards' health."""

    dcgm_ready: bool = False
    """Whether the DCGM exporter responds."""
    last_heartbeat: datetime | None = None
    """The time of the last heartbeat."""
    consecutive_heartbeats: Annotated[Count, example(12)] = 0
    """The number of consecutive good heartbeats. A node becomes ready after three."""


class BootstrapWorkload(Wire, frozen=True, kw_only=True):
    """A service pod that prepares the node."""

    name: Annotated[str, Meta(min_length=1, max_length=253), example("dcgm-exporter")]
    """The name of the workload."""
    ready: bool = False
    """Whether the workload is ready."""
    message: Annotated[str, Meta(max_length=1024), example("its image cannot be pulled")] = ""
    """A human-readable explanation of why the workload is not ready."""


class Bootstrap(Wire, frozen=True, kw_only=True):
    """The progress of the node's preparation."""

    phase: Annotated[BootstrapPhase, example("Ready")] | None = None
    """The current step of the preparation.

    Validating (driver and toolkit), GFD (waits for labels), Monitoring (waits for the DCGM exporter), Ready,
    ValidatingFailed (driver or toolkit do not work) or Disabled (Croupier does not manage the node).
    """
    gfd_ready: bool = False
    """Whether GPU feature discovery is ready."""
    toolkit_ready: bool = False
    """Whether the container toolkit is ready."""
    last_run: datetime | None = None
    """The time at which the preparation was last checked."""
    workloads: Annotated[tuple[BootstrapWorkload, ...], Meta(max_length=32)] = ()
    """The service pods that prepare the node."""


Cards: TypeAlias = Annotated[tuple[InventoryID, ...], Meta(max_length=64)]


class AssignedPool(Wire, frozen=True, kw_only=True):
    """A pool that contains cards of the node."""

    name: Annotated[str, Meta(min_length=1, max_length=63), example("training")]
    """The name of the GPUPool."""
    resource: Annotated[Text, example("gpu.deckhouse.io/training")] = ""
    """The extended resource that pods request, gpu.deckhouse.io/<pool>."""
    slots_reserved: Annotated[Count, example(2)] = 0
    """The number of units of the resource that pods hold on this node."""
    since: datetime | None = None
    """The time at which the first of the node's cards joined the pool."""
    inventory_ids: Cards = ()
    """The cards of the node that are in the pool, by inventoryID."""


class PendingPool(Wire, frozen=True, kw_only=True):
    """Cards of the node that are not in a pool yet, and the reason."""

    pool: Annotated[str, Meta(max_length=63), example("training")] = ""
    """The pool that the cards would join. Unset if no pool matches."""
    auto_approved: bool = False
    """Whether the cards join without the assignment annotation."""
    reason: Annotated[PendingReason, example("AwaitingApproval")]
    """Why the cards have not joined: AwaitingApproval, NoPoolMatched, OutOfSelector or Declined."""
    annotation_hint: Annotated[Text, example("gpu.deckhouse.io/assignment=training")] = ""
    """The annotation to set on the GPUDevice so that it joins the pool."""
    inventory_ids: Cards = ()
    """The cards that wait for this reason, by inventoryID."""


class NodePools(Wire, frozen=True, kw_only=True):
    """The pools of the node's cards."""

    assigned: Annotated[tuple[AssignedPool, ...], Meta(max_length=64)] = ()
    """The pools that contain cards of the node."""
    pending: Annotated[tuple[PendingPool, ...], Meta(max_length=64)] = ()
    """The cards that are not in a pool yet, with the reason."""


class GPUNodeInventoryStatus(Wire, frozen=True, kw_only=True):
    """The observed state of the node's GPU cards."""

    hw: Annotated[NodeHardware, ATOMIC_MAP] = NodeHardware()
    """The GPU cards of the node."""
    driver: Annotated[Driver, ATOMIC_MAP] = Driver()
    """The NVIDIA driver of the node."""
    monitoring: Annotated[Monitoring, ATOMIC_MAP] = Monitoring()
    """The monitoring of the cards' health."""
    bootstrap: Annotated[Bootstrap, ATOMIC_MAP] = Bootstrap()
    """The progress of the node's preparation."""
    pools: Annotated[NodePools, ATOMIC_MAP] = NodePools()
    """The pools of the node's cards."""
    observed_generation: ObservedGeneration | None = None
    """The metadata.generation that cards and driver were recorded for. Each condition has its own."""
    conditions: Conditions = ()
    """Conditions of the node, for example InventoryIncomplete, DriverMissing or ReadyForPooling."""


class GPUNodeInventory(Wire, frozen=True, kw_only=True):
    """The GPU cards of one node. The object has the same name as the node."""

    metadata: ObjectMeta = ObjectMeta()
    status: GPUNodeInventoryStatus = GPUNodeInventoryStatus()
    """The observed state of the node's GPU cards."""
