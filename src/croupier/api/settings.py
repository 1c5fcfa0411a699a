"""The settings of an installation.

The same tree comes from a file, a ConfigMap or a ModuleConfig, and is `settings` in the values of the chart.
The schema of the chart and the reference page are generated from these Structs. `RESTARTS` marks a setting
whose change takes effect only after a restart.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, convert, field

from croupier.api.meta import LabelSelector
from croupier.api.wire import INT32, Wire, example, schema
from croupier.core.model import smallest_share

_DURATION: Final = "^([0-9]{1,6})(s|m|h)$"
Duration: TypeAlias = Annotated[str, Meta(pattern=_DURATION), example("90s")]
MemorySize: TypeAlias = Annotated[str, Meta(pattern="^[1-9][0-9]*(Mi|Gi)$"), example("10Gi")]
Days: TypeAlias = Annotated[str, Meta(pattern="^([1-9]|[1-5][0-9]|6[0-2])d$"), example("35d")]
LabelKey: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=316), example("topology.kubernetes.io/zone")
]

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_MAX_TTL: Final = "The longest ttlSeconds of a Reservation. 0s is no limit."
_DEFAULT_TTL: Final = "When a Reservation without ttlSeconds and without a bound pod ends. 0s is never."
RESTARTS: Final = schema(x_restarts=True)
"""Marks a setting whose change takes effect only after the processes restart."""


def seconds(span: str) -> int:
    """The seconds of a duration such as `90s`, `10m` or `1h`."""
    return int(span[:-1]) * _SECONDS[span[-1]]


def days(span: str) -> int:
    """The days of a span such as `35d`."""
    return int(span[:-1])


class ManagedNodesSettings(Wire, frozen=True, kw_only=True):
    """Which nodes Croupier manages."""

    label_key: Annotated[LabelKey, example("gpu.deckhouse.io/enabled")] = "gpu.deckhouse.io/enabled"
    """The node label that includes ("true") or excludes ("false") a node."""
    enabled_by_default: bool = True
    """Whether nodes without the label are managed."""


class DeviceApproval(Wire, frozen=True, kw_only=True):
    """How cards join pools that have no own deviceAssignment."""

    mode: Literal["Manual", "Automatic", "Selector"] = "Manual"
    """Manual requires an annotation, Automatic takes all matching cards, Selector those that it matches."""
    selector: LabelSelector = LabelSelector()
    """In mode Selector: the labels of GPUDevices that join without an annotation."""


class SchedulingDefaults(Wire, frozen=True, kw_only=True):
    """How pods are placed, for pools without own scheduling options."""

    default_strategy: Annotated[Literal["Spread", "BinPack", "LeastFragmentation"], RESTARTS] = "Spread"
    """BinPack fills nodes, Spread distributes pods, LeastFragmentation avoids small unusable remainders."""
    topology_key: LabelKey = "topology.kubernetes.io/zone"
    """The node label that Spread distributes pods by."""


class InventorySettings(Wire, frozen=True, kw_only=True):
    """How often nodes are checked."""

    resync_period: Annotated[Duration, RESTARTS] = "30s"
    """The interval at which a node is checked again even if nothing has changed."""


class ReservationSettings(Wire, frozen=True, kw_only=True):
    """How long capacity is held for a pod that is not bound yet."""

    ttl: Annotated[Duration, RESTARTS] = "120s"
    """The time after which a hold or a booking expires if its pod is not bound."""


class ReservationObjectSettings(Wire, frozen=True, kw_only=True):
    """The objects of kind Reservation: what a namespace may hold with them, and mirrors of placements."""

    max_per_namespace: Annotated[int, Meta(ge=0, le=100_000), INT32, example(100)] = 100
    """The largest number of Reservations without a bound pod in one namespace. 0 is no limit."""
    max_cards_per_namespace: Annotated[int, Meta(ge=0, le=100_000), INT32, example(32)] = 32
    """The largest number of cards that Reservations without a bound pod hold per namespace. 0: no limit."""
    max_ttl: Annotated[Duration, Meta(description=_MAX_TTL)] = field(name="maxTTL", default="24h")
    default_ttl: Annotated[Duration, Meta(description=_DEFAULT_TTL)] = field(name="defaultTTL", default="1h")
    mirror: Literal["Off", "On"] = "Off"
    """On: each placed pod without a Reservation gets one that shows what it holds. Off: none does."""
    mirror_keep: Duration = "10m"
    """How long such a Reservation is kept as Released after its pod has ended."""


class SharingSettings(Wire, frozen=True, kw_only=True):
    """How cards are shared by percent."""

    min_percent: Annotated[int, Meta(ge=1, le=100), INT32, RESTARTS, example(5)] = smallest_share.DEFAULT
    """The smallest share of a card that a pod or Reservation may request, for pools that set none."""


class UsageSettings(Wire, frozen=True, kw_only=True):
    """The record of how long cards were held."""

    retention: Days = "35d"
    """How many days of usage are kept: 1d to 62d."""


class FallbackSettings(Wire, frozen=True, kw_only=True):
    """Which MIG profile replaces a requested profile that no node offers."""

    direction: Literal["nearest", "down", "up", "off"] = "nearest"
    """Profiles to try: nearest (smaller, then larger), down (only smaller), up (only larger), off (none)."""
    min_memory: MemorySize | None = None
    """The smallest memory of a replacement profile. No limit if unset."""
    prefer_available: Annotated[bool, schema(x_restarts=True, default=False)] = False
    """Whether to prefer a profile of which one node has enough free devices now."""
    when_nothing_fits: Literal["Admit", "Deny"] = "Admit"
    """Whether a pod without a suitable profile is admitted unchanged (Admit) or refused (Deny)."""


class PodAllocationSettings(Wire, frozen=True, kw_only=True):
    """How many PodAllocations a namespace may have."""

    max_per_namespace: Annotated[int, Meta(ge=1, le=100_000), INT32, example(3000)] = 3000
    """The oldest ones up to this number are applied; newer ones fail with the reason TooManyAllocations."""


class MaintenanceSettings(Wire, frozen=True, kw_only=True):
    """The repartitioning of the cards of a pool."""

    deadline: Duration = "1h"
    """How long a pool may stay in Maintenance before GPUModeChangeStuck reports the remaining holders."""


class CapacityLowAlert(Wire, frozen=True, kw_only=True):
    """When the alert GPUPoolCapacityLow fires."""

    percent: Annotated[int, Meta(ge=0, le=100), INT32, example(10)] = 10
    """The threshold: the percentage of a pool's total capacity that must be available."""
    for_: Annotated[
        Duration, Meta(description="How long capacity must stay below the threshold before the alert fires.")
    ] = field(name="for", default="10m")


class NodeWithoutPoolAlert(Wire, frozen=True, kw_only=True):
    """When the alerts GPUNodeWithoutPool and GPUUnassignedDevice fire."""

    for_: Annotated[
        Duration, Meta(description="How long a healthy card must be unassigned before the alert fires.")
    ] = field(name="for", default="30m")


class AlertSettings(Wire, frozen=True, kw_only=True):
    """When alerts fire."""

    capacity_low: CapacityLowAlert = CapacityLowAlert()
    """When the alert GPUPoolCapacityLow fires."""
    node_without_pool: NodeWithoutPoolAlert = NodeWithoutPoolAlert()
    """When the alerts GPUNodeWithoutPool and GPUUnassignedDevice fire."""


class GuardSettings(Wire, frozen=True, kw_only=True):
    """Containers without cards that set NVIDIA_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES."""

    mode: Literal["Off", "Warn", "Void", "Deny"] = "Warn"
    """Off, Warn (admits, with a warning), Void (hides the cards) or Deny. Set by the chart; quote "Off"."""
    images: Literal["Auto", "Always", "Never"] = "Auto"
    """In mode Void, whether void is added for images: Always, Never, or Auto (NVIDIA's default runtime)."""


class MonitoringSettings(Wire, frozen=True, kw_only=True):
    """Objects for the Prometheus operator."""

    service_monitor: bool = True
    """Whether ServiceMonitors and PrometheusRules are installed if the cluster has these kinds."""


class HttpsSettings(Wire, frozen=True, kw_only=True):
    """The serving certificate of the webhook."""

    mode: Annotated[Literal["SelfSigned", "CertManager"], RESTARTS] = "SelfSigned"
    """Whether Croupier (SelfSigned) or cert-manager (CertManager) issues and renews the certificate."""


class Configuration(Wire, frozen=True, kw_only=True):
    """All settings. A setting that is left out has its default."""

    high_availability: Annotated[bool, RESTARTS] | None = None
    """True: two replicas, ledger in NodeReservations. Unset: two replicas, except on a single node."""
    managed_nodes: ManagedNodesSettings = ManagedNodesSettings()
    """Which nodes Croupier manages."""
    device_approval: DeviceApproval = DeviceApproval()
    """How cards join pools that have no own deviceAssignment."""
    scheduling: SchedulingDefaults = SchedulingDefaults()
    """How pods are placed, for pools without own scheduling options."""
    inventory: InventorySettings = InventorySettings()
    """How often nodes are checked."""
    reservation: ReservationSettings = ReservationSettings()
    """How long capacity is held for a pod that is not bound yet."""
    reservations: ReservationObjectSettings = ReservationObjectSettings()
    """The objects of kind Reservation: what a namespace may hold with them, and mirrors of placements."""
    sharing: SharingSettings = SharingSettings()
    """How cards are shared by percent."""
    usage: UsageSettings = UsageSettings()
    """The record of how long cards were held."""
    capacity_manager: Annotated[Literal["InMemory", "CRD"], RESTARTS] = "InMemory"
    """Where the ledger is: CRD (NodeReservations; the chart sets it) or InMemory (one extender process)."""
    fallback: FallbackSettings = FallbackSettings()
    """Which MIG profile replaces a requested profile that no node offers."""
    pod_allocations: PodAllocationSettings = PodAllocationSettings()
    """How many PodAllocations a namespace may have."""
    maintenance: MaintenanceSettings = MaintenanceSettings()
    """The repartitioning of the cards of a pool."""
    alerts: AlertSettings = AlertSettings()
    """When alerts fire."""
    guard: GuardSettings = GuardSettings()
    """Containers without cards that set NVIDIA_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES."""
    monitoring: MonitoringSettings = MonitoringSettings()
    """Objects for the Prometheus operator."""
    log_level: Literal["Debug", "Info", "Warning", "Error"] = "Info"
    """The lowest level of log lines that the processes write: Debug, Info, Warning or Error."""
    https: HttpsSettings = HttpsSettings()
    """The serving certificate of the webhook."""

    @property
    def book(self) -> Literal["InMemory", "CRD"]:
        """Replicas cannot share a ledger in memory, so high availability implies CRD."""
        return "CRD" if self.high_availability else self.capacity_manager


def read(data: Any) -> Configuration:
    """Convert data for which `settings_check.problems` returned nothing."""
    return convert(data, Configuration)
