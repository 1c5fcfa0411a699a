"""Decides whether a node is ready to serve its cards, and which service pods to start there.

A node is prepared in steps: driver and toolkit, labels (GPU Feature Discovery), monitoring. Nothing is
started where the Croupier agent or service pods of another operator do this already. Missing information
counts as unknown for a while, so that a node that has just joined is not reported as failing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from croupier.core.cards.lifecycle import CardPhase
from croupier.core.model import name_list
from croupier.core.model.condition import DesiredCondition
from croupier.core.model.name_list import named

BootstrapPhase: TypeAlias = Literal[
    "Disabled", "Validating", "ValidatingFailed", "GFD", "Monitoring", "Ready"
]
ServiceKind: TypeAlias = Literal["gpu-feature-discovery", "dcgm-exporter"]

GFD: Final[ServiceKind] = "gpu-feature-discovery"
DCGM: Final[ServiceKind] = "dcgm-exporter"
SERVICE_KINDS: Final[tuple[ServiceKind, ...]] = (GFD, DCGM)
SERVICE: Final = "gpu.deckhouse.io/service"
"""The label of the service pods that Croupier starts; its value is the kind of service."""
IMAGE: Final = "gpu.deckhouse.io/image"
"""The annotation with the image of a service pod."""
COMMANDS: Final[Mapping[ServiceKind, tuple[str, ...]]] = {GFD: ("gpu-feature-discovery",)}
"""The program of a service, if it is not the one that its image starts: NVIDIA's image has several."""
FEATURES_DIR: Final = "/etc/kubernetes/node-feature-discovery/features.d"
"""The directory of a node in which GPU Feature Discovery writes its results."""
ENVIRONMENT: Final = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
"""The environment that lets a container see the cards of its node."""
TRUSTED_NAMESPACES: Final = ("gpu-operator", "nvidia-gpu-operator", "kube-system", "d8-monitoring")
"""Other namespaces whose service pods count. Any user can label a pod, so others do not count."""

_NAMES: Final = ("app", "app.kubernetes.io/name", "k8s-app")
_KNOWN: Final[dict[str, ServiceKind]] = {
    "gpu-feature-discovery": GFD,
    "nvidia-gpu-feature-discovery": GFD,
    "dcgm-exporter": DCGM,
    "nvidia-dcgm-exporter": DCGM,
}
"""Names that common charts and operators use."""

HEARTBEATS_NEEDED: Final = 3
"""Consecutive good heartbeats that a node needs."""
HEARTBEAT_INTERVAL: Final = 14.0
"""The least seconds between two heartbeats; a node that is not ready is reconciled every 15 s."""
HEARTBEAT_TIMEOUT: Final = 120.0
"""Seconds after which a heartbeat is too old, and after which missing information counts as a failure."""
NOT_READY_REQUEUE: Final = 15.0
READY_REQUEUE: Final = 60.0
NEVER: Final = float("inf")

MISSING: Final = ("DriverMissing", "ToolkitMissing", "MonitoringMissing")
"""Conditions that stop the cards of the node from serving while one is True; all must be False."""
_BEFORE_READY: Final[tuple[CardPhase, ...]] = ("Discovered", "Validating")


def kind_of(labels: Mapping[str, str], own: str = "") -> ServiceKind | None:
    """The kind of service of a pod with these labels; `own` is the value of the label `SERVICE`."""
    words = (own, *(labels.get(name, "") for name in _NAMES))
    return next((_KNOWN[word] for word in words if word in _KNOWN), None)


@dataclass(frozen=True, slots=True)
class BootstrapCard:
    """One card of the node, as far as the state of the node depends on it."""

    id: str
    phase: CardPhase = "Discovered"
    held: bool = False


@dataclass(frozen=True, slots=True)
class ServicePod:
    """A pod that labels or monitors its node; `ours` if Croupier started it."""

    kind: ServiceKind
    name: str
    ready: bool = False
    message: str = ""
    ours: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatCount:
    """Consecutive good heartbeats, and when the last one was seen by the monotonic clock."""

    beats: int
    at: float


@dataclass(frozen=True, slots=True)
class BootstrapFacts:
    """The inputs of the decision. `cards` does not include cards that are set aside."""

    managed: bool = True
    cards: tuple[BootstrapCard, ...] = ()
    incomplete: str = ""
    """Why the inventory of the node is incomplete, as a sentence."""
    agent: bool = False
    """An agent has reported from the node, possibly long ago."""
    driver: str = ""
    toolkit: bool = False
    labelled: bool = False
    """The node has the labels of GPU Feature Discovery."""
    monitored_by: str = ""
    services: tuple[ServicePod, ...] = ()
    images: Mapping[ServiceKind, str] = field(default_factory=dict)
    """Images of the services; a service without an image is not started."""
    beats: int = 0
    since_heartbeat: float = NEVER
    """Seconds since the last heartbeat."""
    observed_for: float = 0.0
    """Seconds since this process first saw the node."""

    def of(self, kind: ServiceKind) -> tuple[ServicePod, ...]:
        return tuple(service for service in self.services if service.kind == kind)

    @property
    def is_too_early(self) -> bool:
        """It is too early to report missing information."""
        return not self.agent and self.observed_for < HEARTBEAT_TIMEOUT


@dataclass(frozen=True, slots=True)
class BootstrapDecision:
    phase: BootstrapPhase
    conditions: tuple[DesiredCondition, ...] = ()
    start: frozenset[ServiceKind] = frozenset()
    """Service pods of Croupier that should run on the node; the others are stopped."""
    gfd_ready: bool = False
    toolkit_ready: bool = False
    dcgm_ready: bool = False
    beats: int = 0
    again: float = NOT_READY_REQUEUE
    """Seconds until the next reconcile."""

    @property
    def ready(self) -> bool:
        return self.phase == "Ready"


def count_heartbeat(before: HeartbeatCount | None, *, good: bool, now: float) -> HeartbeatCount | None:
    """Count heartbeats of a node without an agent: a reconcile with a ready exporter is one."""
    if not good:
        return None if before is None else replace(before, beats=0)
    if before is None:
        return HeartbeatCount(1, now)
    if before.beats and now - before.at < HEARTBEAT_INTERVAL:
        return before
    return HeartbeatCount(min(HEARTBEATS_NEEDED, before.beats + 1), now)


def decide(facts: BootstrapFacts) -> BootstrapDecision:
    if not facts.managed:
        return BootstrapDecision("Disabled", again=READY_REQUEUE)
    missing = (_driver(facts), _toolkit(facts), _monitoring(facts))
    gfd = _gfd(facts)
    phase = _phase(missing, gfd)
    return BootstrapDecision(
        phase,
        (*missing, gfd, _pooling(facts, missing), *_degraded(facts, missing)),
        start=frozenset(kind for kind in _needed(facts) if facts.images.get(kind)),
        gfd_ready=gfd.status == "True",
        toolkit_ready=missing[1].status == "False",
        dcgm_ready=facts.monitored_by == DCGM or any(service.ready for service in facts.of(DCGM)),
        beats=facts.beats if facts.since_heartbeat <= HEARTBEAT_TIMEOUT else 0,
        again=READY_REQUEUE if phase == "Ready" else NOT_READY_REQUEUE,
    )


def _phase(
    missing: tuple[DesiredCondition, DesiredCondition, DesiredCondition], gfd: DesiredCondition
) -> BootstrapPhase:
    driver, toolkit, monitoring = (condition.status for condition in missing)
    if "True" in (driver, toolkit):
        return "ValidatingFailed"
    if "Unknown" in (driver, toolkit):
        return "Validating"
    if gfd.status != "True":
        return "GFD"
    return "Ready" if monitoring == "False" else "Monitoring"


def _driver(facts: BootstrapFacts) -> DesiredCondition:
    kind = "DriverMissing"
    if facts.driver:
        return DesiredCondition(kind, "False", "DriverFound", f"the driver {facts.driver} is loaded")
    if facts.is_too_early:
        return DesiredCondition(kind, "Unknown", "NotChecked", "no information about the driver yet")
    if facts.agent:
        return DesiredCondition(
            kind, "True", "NoDriver", "the agent found no driver; install the driver on the node"
        )
    return DesiredCondition(
        kind,
        "True",
        "NotReported",
        "neither an agent nor a label reports a driver; install the driver, or run the agent on the node",
    )


def _toolkit(facts: BootstrapFacts) -> DesiredCondition:
    kind = "ToolkitMissing"
    if facts.toolkit:
        return DesiredCondition(kind, "False", "ToolkitFound", "containers can use the cards")
    if facts.is_too_early:
        return DesiredCondition(
            kind, "Unknown", "NotChecked", "no information about the container toolkit yet"
        )
    return DesiredCondition(
        kind,
        "True",
        "NoToolkit",
        "containers cannot use the cards; install the container toolkit on the node",
    )


def _monitoring(facts: BootstrapFacts) -> DesiredCondition:
    kind = "MonitoringMissing"
    if facts.since_heartbeat <= HEARTBEAT_TIMEOUT:
        if facts.beats >= HEARTBEATS_NEEDED:
            source = facts.monitored_by or DCGM
            return DesiredCondition(kind, "False", "Heartbeats", f"{source} reports the health of the cards")
        few = f"{facts.beats} of {HEARTBEATS_NEEDED} good heartbeats so far"
        return DesiredCondition(kind, "Unknown", "FewHeartbeats", few)
    if facts.since_heartbeat == NEVER and facts.observed_for < HEARTBEAT_TIMEOUT:
        return DesiredCondition(
            kind, "Unknown", "NotChecked", "no information about the health of the cards yet"
        )
    silent = f"no information about the health of the cards for {HEARTBEAT_TIMEOUT:.0f} s"
    advice = "check the agent of the node" if facts.agent else _advice(facts, DCGM)
    return DesiredCondition(kind, "True", "NoHeartbeats", f"{silent}: {advice}")


def _gfd(facts: BootstrapFacts) -> DesiredCondition:
    kind = "GFDReady"
    if facts.labelled:
        return DesiredCondition(kind, "True", "Labelled", "the node has the labels of its cards")
    if facts.agent:
        return DesiredCondition(
            kind, "False", "WaitsForAgent", "the agent of the node has not labelled it yet"
        )
    return DesiredCondition(
        kind, "False", "NotLabelled", f"the node has no labels of its cards: {_advice(facts, GFD)}"
    )


def _advice(facts: BootstrapFacts, kind: ServiceKind) -> str:
    for pod in facts.of(kind):
        return f"{pod.name} is not ready{f' ({pod.message})' if pod.message else ''}"
    if kind not in _needed(facts):
        return "run the agent on the node"
    if not facts.images.get(kind):
        return f"{kind} is not started because it has no image; set its image, or run the agent"
    return f"{kind} is being started"


def _needed(facts: BootstrapFacts) -> tuple[ServiceKind, ...]:
    """Services that the node needs. A started service stays until another operator provides it."""
    if not (facts.cards and facts.driver and facts.toolkit) or facts.agent:
        return ()
    return tuple(kind for kind in SERVICE_KINDS if _lacks(facts, kind))


def _lacks(facts: BootstrapFacts, kind: ServiceKind) -> bool:
    pods = facts.of(kind)
    if any(not pod.ours for pod in pods):
        return False
    return bool(pods) or kind == DCGM or not facts.labelled


def _pooling(
    facts: BootstrapFacts, missing: tuple[DesiredCondition, DesiredCondition, DesiredCondition]
) -> DesiredCondition:
    """Whether all cards of the node can be pooled; the first obstacle in this order."""
    kind = "ReadyForPooling"
    faulted = [card.id for card in facts.cards if card.phase == "Faulted"]
    unsettled = [card.id for card in facts.cards if card.phase in _BEFORE_READY]
    if not facts.cards:
        return DesiredCondition(kind, "False", "NoDevices", "the node has no managed cards")
    if facts.incomplete:
        return DesiredCondition(kind, "False", "InventoryIncomplete", facts.incomplete)
    if faulted:
        count = name_list.part_of(len(faulted), len(facts.cards), "card")
        share = f"{count} {name_list.be(len(faulted))} faulted: {named(faulted)}"
        return DesiredCondition(kind, "False", "DevicesFaulted", share)
    if unsettled:
        return DesiredCondition(
            kind, "False", "PendingDevices", f"cards are still being validated: {named(unsettled)}"
        )
    reasons = ("DriverNotReady", "ToolkitNotReady", "MonitoringNotReady")
    for condition, reason in zip(missing, reasons, strict=True):
        if condition.status != "False":
            return DesiredCondition(kind, "False", reason, condition.message)
    return DesiredCondition(kind, "True", "Ready", "all cards can serve pools")


def _degraded(
    facts: BootstrapFacts, missing: tuple[DesiredCondition, DesiredCondition, DesiredCondition]
) -> tuple[DesiredCondition, DesiredCondition]:
    failing = [condition for condition in missing if condition.status == "True"]
    held = [card.id for card in facts.cards if card.held]
    if not failing:
        fine = "driver, toolkit and monitoring do not fail"
        return (
            DesiredCondition("InfraDegraded", "False", "InfraHealthy", fine),
            DesiredCondition("DegradedWorkloads", "False", "InfraHealthy", fine),
        )
    degraded = DesiredCondition("InfraDegraded", "True", failing[0].type, failing[0].message)
    if not held:
        return degraded, DesiredCondition(
            "DegradedWorkloads", "False", "NoWorkloads", "no card of the node is in use"
        )
    message = f"{failing[0].message}; pods still use {named(held)}"
    return degraded, DesiredCondition("DegradedWorkloads", "True", failing[0].type, message)
