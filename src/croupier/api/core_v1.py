"""The fields of Kubernetes' own kinds that Croupier reads.

A decoded object is partial: never write it back as a whole. Patch the changed fields, or merge them into the
object as it was received.
"""

from datetime import datetime
from typing import Final, TypeAlias

from msgspec import field

from croupier.api.meta import ObjectMeta
from croupier.api.wire import Wire

ResourceList: TypeAlias = dict[str, str]
"""Resource name to quantity as text. `core.quantity.parse` parses it."""

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of the mirror pod of a static pod."""

MicroTime: TypeAlias = str
"""RFC 3339 with exactly six fractional digits. Go refuses any other number of digits, so it stays text."""


def micro_time(moment: datetime) -> MicroTime:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class ResourceRequirements(Wire, frozen=True, kw_only=True):
    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


class ResizePolicy(Wire, frozen=True, kw_only=True):
    resource_name: str
    restart_policy: str


class Container(Wire, frozen=True, kw_only=True):
    name: str
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ResizePolicy, ...] = ()
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Whether this is an init container that keeps running along with the main containers."""
        return self.restart_policy == "Always"


class PodOS(Wire, frozen=True, kw_only=True):
    name: str = ""


class Toleration(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorRequirement(Wire, frozen=True, kw_only=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Wire, frozen=True, kw_only=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Wire, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Wire, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Wire, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None


class PodSpec(Wire, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = field(default_factory=dict)
    resources: ResourceRequirements = ResourceRequirements()
    node_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduler_name: str = ""
    service_account_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    restart_policy: str = ""
    os: PodOS = PodOS()


class PodCondition(Wire, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class ContainerStateRunning(Wire, frozen=True, kw_only=True):
    started_at: datetime | None = None


class ContainerStateWaiting(Wire, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class ContainerStateTerminated(Wire, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    finished_at: datetime | None = None


class ContainerState(Wire, frozen=True, kw_only=True):
    running: ContainerStateRunning | None = None
    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire, frozen=True, kw_only=True):
    """`resources` is what the kubelet enforces, `allocated_resources` what it has reserved."""

    name: str
    ready: bool = False
    started: bool = False
    restart_count: int = 0
    container_id: str = ""
    state: ContainerState = ContainerState()
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = field(default_factory=dict)


class PodStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = field(name="podIP", default="")
    qos_class: str = ""
    observed_generation: int = 0
    start_time: datetime | None = None
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = field(default_factory=dict)


class Pod(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        """Succeeded or Failed: the pod uses no resources any more."""
        return self.status.phase in ("Succeeded", "Failed")


class Taint(Wire, frozen=True, kw_only=True):
    key: str
    effect: str
    value: str = ""
    time_added: datetime | None = None


class NodeSpec(Wire, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Wire, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_heartbeat_time: datetime | None = None
    last_transition_time: datetime | None = None


class NodeStatus(Wire, frozen=True, kw_only=True):
    capacity: ResourceList = field(default_factory=dict)
    allocatable: ResourceList = field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()


class Node(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""


class Namespace(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()


class ServiceAccount(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


class ConfigMap(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = field(default_factory=dict)


class Secret(Wire, frozen=True, kw_only=True):
    """`data` is base64-encoded, as in JSON."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, str] = field(default_factory=dict)


class WebhookClientConfig(Wire, frozen=True, kw_only=True):
    ca_bundle: str = ""
    """PEM in base64, as in JSON."""
    url: str = ""


class Webhook(Wire, frozen=True, kw_only=True):
    name: str
    client_config: WebhookClientConfig = WebhookClientConfig()


class WebhookConfiguration(Wire, frozen=True, kw_only=True):
    """admissionregistration.k8s.io/v1: a MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] = ()


class LeaseSpec(Wire, frozen=True, kw_only=True):
    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    lease_transitions: int = 0
    acquire_time: MicroTime = ""
    renew_time: MicroTime = ""


class Lease(Wire, frozen=True, kw_only=True):
    """coordination.k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Wire, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSeries(Wire, frozen=True, kw_only=True):
    count: int
    last_observed_time: MicroTime


class Event(Wire, frozen=True, kw_only=True):
    """events.k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    event_time: MicroTime = ""
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    note: str = ""
    type: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    series: EventSeries | None = None
