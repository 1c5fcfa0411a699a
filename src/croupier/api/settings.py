"""The settings of an installation, described once.

The same tree comes from a file, from a ConfigMap or from a ModuleConfig, and is the `settings` of the chart's
values. The schema of the chart, that of the ModuleConfig and the reference page are made of these Structs.
Whether a change takes effect at once or with the next start is said here, too: `restarts`.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, convert, field

from croupier.api.meta import LabelSelector
from croupier.api.wire import INT32, Wire, schema

_SPAN: Final = "^([0-9]{1,6})(s|m|h)$"
Span: TypeAlias = Annotated[str, Meta(pattern=_SPAN), schema(x_example="90s")]
Memory: TypeAlias = Annotated[str, Meta(pattern="^[1-9][0-9]*(Mi|Gi)$"), schema(x_example="10Gi")]
LabelKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=316)]

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
RESTARTS: Final = schema(x_restarts=True)
"""The processes must start again before a change counts."""


def seconds(span: str) -> int:
    """`90s`, `10m`, `1h`."""
    return int(span[:-1]) * _SECONDS[span[-1]]


class ManagedNodes(Wire, frozen=True, kw_only=True):
    """Which nodes' cards are ours to manage."""

    label_key: LabelKey = "gpu.deckhouse.io/enabled"
    """The node label that says so: "true" or "false"."""
    enabled_by_default: bool = True
    """What a node without the label means."""


class DeviceApproval(Wire, frozen=True, kw_only=True):
    """How cards join pools that do not say it themselves."""

    mode: Literal["Manual", "Automatic", "Selector"] = "Manual"
    """By a person's annotation, all that match, or those the selector matches."""
    selector: LabelSelector = LabelSelector()
    """For mode Selector: labels of a GPUDevice."""


class SchedulingDefaults(Wire, frozen=True, kw_only=True):
    """Where pods go, for pools that do not say it themselves."""

    default_strategy: Annotated[Literal["Spread", "BinPack", "LeastFragmentation"], RESTARTS] = "Spread"
    """Fill nodes, spread over them, or leave the least fragments."""
    topology_key: LabelKey = "topology.kubernetes.io/zone"
    """What Spread spreads over."""


class Inventory(Wire, frozen=True, kw_only=True):
    """How closely nodes are looked at."""

    resync_period: Annotated[Span, RESTARTS] = "30s"
    """After how long a node is looked at again though nothing changed."""


class ReservationSettings(Wire, frozen=True, kw_only=True):
    """How long something is kept for a pod that is not bound yet."""

    ttl: Annotated[Span, RESTARTS] = "120s"
    """How long a hold or a booking waits for its pod."""


class FallbackSettings(Wire, frozen=True, kw_only=True):
    """What takes the place of a MIG profile that no node offers."""

    direction: Literal["nearest", "down", "up", "off"] = "nearest"
    """Where to look: smaller profiles first, then larger; only smaller; only larger; nowhere."""
    min_memory: Memory | None = None
    """The least memory of what takes its place."""
    prefer_available: Annotated[bool, schema(x_restarts=True, default=False)] = False
    """Rather take what one node has enough of free now."""
    when_nothing_fits: Literal["Admit", "Deny"] = "Admit"
    """What becomes of a pod nothing can be found for."""


class MaintenanceSettings(Wire, frozen=True, kw_only=True):
    """Pools whose cards are being rebuilt."""

    deadline: Span = "1h"
    """After how long it is said who still holds what (GPUModeChangeStuck)."""


class CapacityLow(Wire, frozen=True, kw_only=True):
    """When a pool counts as nearly full."""

    percent: Annotated[int, Meta(ge=0, le=100), INT32] = 10
    """Less than this part of it is available,"""
    for_: Annotated[Span, Meta(description="for so long.")] = field(name="for", default="10m")


class NodeWithoutPool(Wire, frozen=True, kw_only=True):
    """When a card that serves no pool is worth an alert."""

    for_: Annotated[Span, Meta(description="Fit and unassigned for so long.")] = field(
        name="for", default="30m"
    )


class AlertSettings(Wire, frozen=True, kw_only=True):
    """When alerts are raised."""

    capacity_low: CapacityLow = CapacityLow()
    """GPUPoolCapacityLow."""
    node_without_pool: NodeWithoutPool = NodeWithoutPool()
    """GPUNodeWithoutPool and GPUUnassignedDevice."""


class MonitoringSettings(Wire, frozen=True, kw_only=True):
    """What is made for the Prometheus operator."""

    service_monitor: bool = True
    """Whether ServiceMonitors and rules are installed where their kinds exist."""


class HttpsSettings(Wire, frozen=True, kw_only=True):
    """The certificate of the webhook."""

    mode: Annotated[Literal["SelfSigned", "CertManager"], RESTARTS] = "SelfSigned"
    """Made and renewed by us, or by cert-manager."""


class Configuration(Wire, frozen=True, kw_only=True):
    """Everything that can be set. What is left out is as the default says."""

    high_availability: Annotated[bool, RESTARTS] | None = None
    """Two of every process, and the ledger in the API server; by the size of the cluster when unset."""
    managed_nodes: ManagedNodes = ManagedNodes()
    """Which nodes' cards are ours to manage."""
    device_approval: DeviceApproval = DeviceApproval()
    """How cards join pools that do not say it themselves."""
    scheduling: SchedulingDefaults = SchedulingDefaults()
    """Where pods go, for pools that do not say it themselves."""
    inventory: Inventory = Inventory()
    """How closely nodes are looked at."""
    reservation: ReservationSettings = ReservationSettings()
    """How long something is kept for a pod that is not bound yet."""
    capacity_manager: Annotated[Literal["InMemory", "CRD"], RESTARTS] = "InMemory"
    """Where the ledger is: in the memory of the one extender, or in NodeReservations for several."""
    fallback: FallbackSettings = FallbackSettings()
    """What takes the place of a MIG profile that no node offers."""
    maintenance: MaintenanceSettings = MaintenanceSettings()
    """Pools whose cards are being rebuilt."""
    alerts: AlertSettings = AlertSettings()
    """When alerts are raised."""
    monitoring: MonitoringSettings = MonitoringSettings()
    """What is made for the Prometheus operator."""
    log_level: Literal["Debug", "Info", "Warning", "Error"] = "Info"
    """What the processes log."""
    https: HttpsSettings = HttpsSettings()
    """The certificate of the webhook."""

    @property
    def book(self) -> Literal["InMemory", "CRD"]:
        """Several schedulers cannot share a book in memory."""
        return "CRD" if self.high_availability else self.capacity_manager


def read(data: Any) -> Configuration:
    """Checked data (`settings_check.problems` found none) as a value."""
    return convert(data, Configuration)
