"""Decides whether a node is ready to serve its cards, and which service pods to start there.

A node is prepared in steps: driver and toolkit, labels (GPU Feature Discovery), monitoring. Nothing is
started where the Croupier agent or service pods of another operator do this already. Missing information
counts as unknown for a while, so that a node that has just joined is not reported as failing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from croupier.core.cards.lifecycle import Phase as CardPhase

Phase: TypeAlias = Literal["Disabled", "Validating", "ValidatingFailed", "GFD", "Monitoring", "Ready"]
Kind: TypeAlias = Literal["gpu-feature-discovery", "dcgm-exporter"]
Answer: TypeAlias = Literal["True", "False", "Unknown"]

GFD: Final[Kind] = "gpu-feature-discovery"
DCGM: Final[Kind] = "dcgm-exporter"
KINDS: Final[tuple[Kind, ...]] = (GFD, DCGM)
SERVICE: Final = "gpu.deckhouse.io/service"
"""The label of the service pods that Croupier starts; its value is the kind of service."""
FEATURES: Final = "/etc/kubernetes/node-feature-discovery/features.d"
"""The directory of a node in which GPU Feature Discovery writes its results."""
ENVIRONMENT: Final = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
"""The environment that lets a container see the cards of its node."""
BELIEVED: Final = ("gpu-operator", "nvidia-gpu-operator", "kube-system", "d8-monitoring")
"""Other namespaces whose service pods count. Any user can label a pod, so others do not count."""

_NAMES: Final = ("app", "app.kubernetes.io/name", "k8s-app")
_KNOWN: Final[dict[str, Kind]] = {
    "gpu-feature-discovery": GFD,
    "nvidia-gpu-feature-discovery": GFD,
    "dcgm-exporter": DCGM,
    "nvidia-dcgm-exporter": DCGM,
}
"""Names that common charts and operators use."""

BEATS: Final = 3
"""Consecutive good heartbeats that a node needs."""
BEAT: Final = 14.0
"""The least seconds between two heartbeats; a node that is not ready is reconciled every 15 s."""
FRESH: Final = 120.0
"""Seconds after which a heartbeat is too old, and after which missing information counts as a failure."""
NOT_READY_AGAIN: Final = 15.0
READY_AGAIN: Final = 60.0
NEVER: Final = float("inf")

MISSING: Final = ("DriverMissing", "ToolkitMissing", "MonitoringMissing")
"""Conditions that stop the cards of the node from serving while one is True; all must be False."""
_UNSETTLED: Final[tuple[CardPhase, ...]] = ("Discovered", "Validating")
_MOST_NAMED: Final = 8


def kind_of(labels: Mapping[str, str], own: str = "") -> Kind | None:
    """The kind of service of a pod with these labels; `own` is the value of the label `SERVICE`."""
    words = (own, *(labels.get(name, "") for name in _NAMES))
    return next((_KNOWN[word] for word in words if word in _KNOWN), None)


@dataclass(frozen=True, slots=True)
class Standing:
    """One card of the node, as far as the state of the node depends on it."""

    id: str
    phase: CardPhase = "Discovered"
    held: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """A pod that labels or monitors its node; `ours` if Croupier started it."""

    kind: Kind
    name: str
    ready: bool = False
    message: str = ""
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Pulse:
    """Consecutive good heartbeats, and when the last one was seen by the monotonic clock."""

    beats: int
    at: float


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The inputs of the decision. `cards` does not include cards that are set aside."""

    managed: bool = True
    cards: tuple[Standing, ...] = ()
    incomplete: str = ""
    """Why the inventory of the node is incomplete, as a sentence."""
    agent: bool = False
    """An agent has reported from the node, possibly long ago."""
    driver: str = ""
    toolkit: bool = False
    labelled: bool = False
    """The node has the labels of GPU Feature Discovery."""
    monitored_by: str = ""
    services: tuple[Service, ...] = ()
    images: Mapping[Kind, str] = field(default_factory=dict)
    """Images of the services; a service without an image is not started."""
    beats: int = 0
    quiet: float = NEVER
    """Seconds since the last heartbeat."""
    waited: float = 0.0
    """Seconds since this process first saw the node."""

    def of(self, kind: Kind) -> tuple[Service, ...]:
        return tuple(service for service in self.services if service.kind == kind)

    @property
    def patient(self) -> bool:
        """It is too early to report missing information."""
        return not self.agent and self.waited < FRESH


@dataclass(frozen=True, slots=True)
class Judged:
    """The desired value of a condition."""

    type: str
    status: Answer
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    phase: Phase
    conditions: tuple[Judged, ...] = ()
    start: frozenset[Kind] = frozenset()
    """Service pods of Croupier that should run on the node; the others are stopped."""
    gfd_ready: bool = False
    toolkit_ready: bool = False
    dcgm_ready: bool = False
    beats: int = 0
    again: float = NOT_READY_AGAIN
    """Seconds until the next reconcile."""

    @property
    def ready(self) -> bool:
        return self.phase == "Ready"


def pulse(before: Pulse | None, *, good: bool, now: float) -> Pulse | None:
    """Count heartbeats of a node without an agent: a reconcile with a ready exporter is one."""
    if not good:
        return None if before is None else replace(before, beats=0)
    if before is None:
        return Pulse(1, now)
    if before.beats and now - before.at < BEAT:
        return before
    return Pulse(min(BEATS, before.beats + 1), now)


def judge(facts: NodeFacts) -> Verdict:
    if not facts.managed:
        return Verdict("Disabled", again=READY_AGAIN)
    missing = (_driver(facts), _toolkit(facts), _monitoring(facts))
    gfd = _gfd(facts)
    phase = _phase(missing, gfd)
    return Verdict(
        phase,
        (*missing, gfd, _pooling(facts, missing), *_degraded(facts, missing)),
        start=frozenset(kind for kind in _needed(facts) if facts.images.get(kind)),
        gfd_ready=gfd.status == "True",
        toolkit_ready=missing[1].status == "False",
        dcgm_ready=facts.monitored_by == DCGM or any(service.ready for service in facts.of(DCGM)),
        beats=facts.beats if facts.quiet <= FRESH else 0,
        again=READY_AGAIN if phase == "Ready" else NOT_READY_AGAIN,
    )


def _phase(missing: tuple[Judged, Judged, Judged], gfd: Judged) -> Phase:
    driver, toolkit, monitoring = (condition.status for condition in missing)
    if "True" in (driver, toolkit):
        return "ValidatingFailed"
    if "Unknown" in (driver, toolkit):
        return "Validating"
    if gfd.status != "True":
        return "GFD"
    return "Ready" if monitoring == "False" else "Monitoring"


def _driver(facts: NodeFacts) -> Judged:
    kind = "DriverMissing"
    if facts.driver:
        return Judged(kind, "False", "DriverFound", f"the driver {facts.driver} is loaded")
    if facts.patient:
        return Judged(kind, "Unknown", "NotChecked", "no information about the driver yet")
    if facts.agent:
        return Judged(kind, "True", "NoDriver", "the agent found no driver; install the driver on the node")
    return Judged(
        kind,
        "True",
        "NotReported",
        "neither an agent nor a label reports a driver; install the driver, or run the agent on the node",
    )


def _toolkit(facts: NodeFacts) -> Judged:
    kind = "ToolkitMissing"
    if facts.toolkit:
        return Judged(kind, "False", "ToolkitFound", "containers can use the cards")
    if facts.patient:
        return Judged(kind, "Unknown", "NotChecked", "no information about the container toolkit yet")
    return Judged(
        kind,
        "True",
        "NoToolkit",
        "containers cannot use the cards; install the container toolkit on the node",
    )


def _monitoring(facts: NodeFacts) -> Judged:
    kind = "MonitoringMissing"
    if facts.quiet <= FRESH:
        if facts.beats >= BEATS:
            source = facts.monitored_by or DCGM
            return Judged(kind, "False", "Heartbeats", f"{source} reports the health of the cards")
        few = f"{facts.beats} of {BEATS} good heartbeats so far"
        return Judged(kind, "Unknown", "FewHeartbeats", few)
    if facts.quiet == NEVER and facts.waited < FRESH:
        return Judged(kind, "Unknown", "NotChecked", "no information about the health of the cards yet")
    silent = f"no information about the health of the cards for {FRESH:.0f} s"
    advice = "check the agent of the node" if facts.agent else _advice(facts, DCGM)
    return Judged(kind, "True", "NoHeartbeats", f"{silent}: {advice}")


def _gfd(facts: NodeFacts) -> Judged:
    kind = "GFDReady"
    if facts.labelled:
        return Judged(kind, "True", "Labelled", "the node has the labels of its cards")
    if facts.agent:
        return Judged(kind, "False", "WaitsForAgent", "the agent of the node has not labelled it yet")
    return Judged(kind, "False", "NotLabelled", f"the node has no labels of its cards: {_advice(facts, GFD)}")


def _advice(facts: NodeFacts, kind: Kind) -> str:
    for pod in facts.of(kind):
        return f"{pod.name} is not ready{f' ({pod.message})' if pod.message else ''}"
    if kind not in _needed(facts):
        return "run the agent on the node"
    if not facts.images.get(kind):
        return f"{kind} is not started because it has no image; set its image, or run the agent"
    return f"{kind} is being started"


def _needed(facts: NodeFacts) -> tuple[Kind, ...]:
    """Services that the node needs. A started service stays until another operator provides it."""
    if not (facts.cards and facts.driver and facts.toolkit) or facts.agent:
        return ()
    return tuple(kind for kind in KINDS if _lacks(facts, kind))


def _lacks(facts: NodeFacts, kind: Kind) -> bool:
    pods = facts.of(kind)
    if any(not pod.ours for pod in pods):
        return False
    return bool(pods) or kind == DCGM or not facts.labelled


def _pooling(facts: NodeFacts, missing: tuple[Judged, Judged, Judged]) -> Judged:
    """Whether all cards of the node can be pooled; the first obstacle in this order."""
    kind = "ReadyForPooling"
    faulted = [card.id for card in facts.cards if card.phase == "Faulted"]
    unsettled = [card.id for card in facts.cards if card.phase in _UNSETTLED]
    if not facts.cards:
        return Judged(kind, "False", "NoDevices", "the node has no managed cards")
    if facts.incomplete:
        return Judged(kind, "False", "InventoryIncomplete", facts.incomplete)
    if faulted:
        share = f"{len(faulted)} of {len(facts.cards)} cards are faulted: {named(faulted)}"
        return Judged(kind, "False", "DevicesFaulted", share)
    if unsettled:
        return Judged(kind, "False", "PendingDevices", f"cards are still being validated: {named(unsettled)}")
    reasons = ("DriverNotReady", "ToolkitNotReady", "MonitoringNotReady")
    for condition, reason in zip(missing, reasons, strict=True):
        if condition.status != "False":
            return Judged(kind, "False", reason, condition.message)
    return Judged(kind, "True", "Ready", "all cards can serve pools")


def _degraded(facts: NodeFacts, missing: tuple[Judged, Judged, Judged]) -> tuple[Judged, Judged]:
    failing = [condition for condition in missing if condition.status == "True"]
    held = [card.id for card in facts.cards if card.held]
    if not failing:
        fine = "driver, toolkit and monitoring do not fail"
        return (
            Judged("InfraDegraded", "False", "InfraHealthy", fine),
            Judged("DegradedWorkloads", "False", "InfraHealthy", fine),
        )
    degraded = Judged("InfraDegraded", "True", failing[0].type, failing[0].message)
    if not held:
        return degraded, Judged("DegradedWorkloads", "False", "NoWorkloads", "no card of the node is in use")
    message = f"{failing[0].message}; pods still use {named(held)}"
    return degraded, Judged("DegradedWorkloads", "True", failing[0].type, message)


def named(cards: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    names = sorted(cards)
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
