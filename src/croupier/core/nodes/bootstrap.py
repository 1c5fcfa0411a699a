"""Whether a node is fit to serve its cards, and what is started there to make it so.

A node is prepared step by step: its driver and its toolkit, its labels (GPU feature discovery), its
monitoring. Where an agent of ours, or somebody else's service pods, do that already, nothing is started.
What nobody has told of yet is unknown for a while, and not missing: a node that just joined is not broken.
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
"""The label of the pods we start; its value is what they do."""
FEATURES: Final = "/etc/kubernetes/node-feature-discovery/features.d"
"""The folder of a node in which GPU feature discovery leaves what it found."""
ENVIRONMENT: Final = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
"""What lets a container see the cards of its node."""
BELIEVED: Final = ("gpu-operator", "nvidia-gpu-operator", "kube-system", "d8-monitoring")
"""Namespaces beside our own whose service pods count: anybody may label a pod of his own."""

_NAMES: Final = ("app", "app.kubernetes.io/name", "k8s-app")
_KNOWN: Final[dict[str, Kind]] = {
    "gpu-feature-discovery": GFD,
    "nvidia-gpu-feature-discovery": GFD,
    "dcgm-exporter": DCGM,
    "nvidia-dcgm-exporter": DCGM,
}
"""What the usual charts and operators call theirs."""

BEATS: Final = 3
"""Good heartbeats in a row that make a node fit."""
BEAT: Final = 14.0
"""Seconds between two looks that count as two heartbeats: looks are 15 s apart while a node is not ready."""
FRESH: Final = 120.0
"""Seconds after which the last heartbeat is too old, and after which what nobody told of is missing."""
NOT_READY_AGAIN: Final = 15.0
READY_AGAIN: Final = 60.0
NEVER: Final = float("inf")

MISSING: Final = ("DriverMissing", "ToolkitMissing", "MonitoringMissing")
"""The conditions that make cards of the node unfit when they are True, and fit when all are False."""
_UNSETTLED: Final[tuple[CardPhase, ...]] = ("Discovered", "Validating")
_MOST_NAMED: Final = 8


def kind_of(labels: Mapping[str, str], own: str = "") -> Kind | None:
    """What a pod with these labels does for its node; `own` is what we ourselves call it."""
    words = (own, *(labels.get(name, "") for name in _NAMES))
    return next((_KNOWN[word] for word in words if word in _KNOWN), None)


@dataclass(frozen=True, slots=True)
class Standing:
    """One card of the node, as far as the node depends on it."""

    id: str
    phase: CardPhase = "Discovered"
    held: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """A pod on the node that labels or monitors it; `ours` if we started it."""

    kind: Kind
    name: str
    ready: bool = False
    message: str = ""
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Pulse:
    """Good heartbeats in a row, and when the last one was seen by the monotonic clock."""

    beats: int
    at: float


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """All that is known of the node. What is set aside is not among its `cards`."""

    managed: bool = True
    cards: tuple[Standing, ...] = ()
    incomplete: str = ""
    """Why its inventory cannot be relied on, in a sentence."""
    agent: bool = False
    """An agent of ours tells of it, though perhaps not lately."""
    driver: str = ""
    toolkit: bool = False
    labelled: bool = False
    """It carries what GPU feature discovery writes, whoever wrote it."""
    monitored_by: str = ""
    services: tuple[Service, ...] = ()
    images: Mapping[Kind, str] = field(default_factory=dict)
    """What may be started; what has no image is not."""
    beats: int = 0
    quiet: float = NEVER
    """Seconds since the last heartbeat."""
    waited: float = 0.0
    """Seconds we have been looking."""

    def of(self, kind: Kind) -> tuple[Service, ...]:
        return tuple(one for one in self.services if one.kind == kind)

    @property
    def patient(self) -> bool:
        """Somebody may still tell."""
        return not self.agent and self.waited < FRESH


@dataclass(frozen=True, slots=True)
class Judged:
    """One condition of the node."""

    type: str
    status: Answer
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    phase: Phase
    conditions: tuple[Judged, ...] = ()
    start: frozenset[Kind] = frozenset()
    """What of ours shall run there; the rest of ours shall not."""
    gfd_ready: bool = False
    toolkit_ready: bool = False
    dcgm_ready: bool = False
    beats: int = 0
    again: float = NOT_READY_AGAIN
    """Seconds until the next look."""

    @property
    def ready(self) -> bool:
        return self.phase == "Ready"


def pulse(before: Pulse | None, *, good: bool, now: float) -> Pulse | None:
    """The heart of a node without an agent: a look at which its exporter is ready is a heartbeat."""
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
        dcgm_ready=facts.monitored_by == DCGM or any(one.ready for one in facts.of(DCGM)),
        beats=facts.beats if facts.quiet <= FRESH else 0,
        again=READY_AGAIN if phase == "Ready" else NOT_READY_AGAIN,
    )


def _phase(missing: tuple[Judged, Judged, Judged], gfd: Judged) -> Phase:
    driver, toolkit, monitoring = (one.status for one in missing)
    if "True" in (driver, toolkit):
        return "ValidatingFailed"
    if "Unknown" in (driver, toolkit):
        return "Validating"
    if gfd.status != "True":
        return "GFD"
    return "Ready" if monitoring == "False" else "Monitoring"


def _driver(facts: NodeFacts) -> Judged:
    said = "DriverMissing"
    if facts.driver:
        return Judged(said, "False", "DriverFound", f"the driver {facts.driver} is loaded")
    if facts.patient:
        return Judged(said, "Unknown", "NotChecked", "nobody has told of the driver of the node yet")
    if facts.agent:
        return Judged(
            said, "True", "NoDriver", "the agent of the node finds no driver: install the driver there"
        )
    return Judged(
        said,
        "True",
        "NobodyTells",
        "no agent and no label of the node tells of a driver: install the driver, or start the agent there",
    )


def _toolkit(facts: NodeFacts) -> Judged:
    said = "ToolkitMissing"
    if facts.toolkit:
        return Judged(said, "False", "ToolkitFound", "containers can reach the cards")
    if facts.patient:
        return Judged(said, "Unknown", "NotChecked", "nobody has told of the container toolkit yet")
    return Judged(
        said,
        "True",
        "NoToolkit",
        "containers cannot reach the cards: install the container toolkit on the node",
    )


def _monitoring(facts: NodeFacts) -> Judged:
    said = "MonitoringMissing"
    if facts.quiet <= FRESH:
        if facts.beats >= BEATS:
            source = facts.monitored_by or DCGM
            return Judged(said, "False", "Heartbeats", f"the health of the cards is known from {source}")
        few = f"{facts.beats} of {BEATS} good heartbeats so far"
        return Judged(said, "Unknown", "FewHeartbeats", few)
    if facts.quiet == NEVER and facts.waited < FRESH:
        return Judged(said, "Unknown", "NotChecked", "nobody has told of the health of the cards yet")
    silent = f"nobody has told of the health of the cards for {FRESH:.0f} s"
    advice = "look after the agent of the node" if facts.agent else _advice(facts, DCGM)
    return Judged(said, "True", "NoHeartbeats", f"{silent}: {advice}")


def _gfd(facts: NodeFacts) -> Judged:
    said = "GFDReady"
    if facts.labelled:
        return Judged(said, "True", "Labelled", "the node carries the labels of its cards")
    if facts.agent:
        return Judged(said, "False", "WaitsForAgent", "the agent of the node has not labelled it yet")
    return Judged(said, "False", "NotLabelled", f"the node has no labels of its cards: {_advice(facts, GFD)}")


def _advice(facts: NodeFacts, kind: Kind) -> str:
    for one in facts.of(kind):
        return f"{one.name} is not ready{f' ({one.message})' if one.message else ''}"
    if kind not in _needed(facts):
        return "start the agent of the node"
    if not facts.images.get(kind):
        return f"{kind} is not started, because no image is set for it; start it, or the agent of the node"
    return f"{kind} is being started"


def _needed(facts: NodeFacts) -> tuple[Kind, ...]:
    """What the node lacks and we could start. What we started stays until somebody else does it."""
    if not (facts.cards and facts.driver and facts.toolkit) or facts.agent:
        return ()
    return tuple(kind for kind in KINDS if _lacks(facts, kind))


def _lacks(facts: NodeFacts, kind: Kind) -> bool:
    found = facts.of(kind)
    if any(not one.ours for one in found):
        return False
    return bool(found) or kind == DCGM or not facts.labelled


def _pooling(facts: NodeFacts, missing: tuple[Judged, Judged, Judged]) -> Judged:
    """Whether all of the node can be pooled; the first obstacle in the order of the contract."""
    said = "ReadyForPooling"
    faulted = [one.id for one in facts.cards if one.phase == "Faulted"]
    unsettled = [one.id for one in facts.cards if one.phase in _UNSETTLED]
    if not facts.cards:
        return Judged(said, "False", "NoDevices", "the node has no cards that we manage")
    if facts.incomplete:
        return Judged(said, "False", "InventoryIncomplete", facts.incomplete)
    if faulted:
        share = f"{len(faulted)} of {len(facts.cards)} cards are faulted: {named(faulted)}"
        return Judged(said, "False", "DevicesFaulted", share)
    if unsettled:
        return Judged(said, "False", "PendingDevices", f"still being checked: {named(unsettled)}")
    for one, reason in zip(missing, ("DriverNotReady", "ToolkitNotReady", "MonitoringNotReady"), strict=True):
        if one.status != "False":
            return Judged(said, "False", reason, one.message)
    return Judged(said, "True", "Ready", "all cards can serve pools")


def _degraded(facts: NodeFacts, missing: tuple[Judged, Judged, Judged]) -> tuple[Judged, Judged]:
    failing = [one for one in missing if one.status == "True"]
    held = [one.id for one in facts.cards if one.held]
    if not failing:
        fine = "driver, toolkit and monitoring do not fail"
        return (
            Judged("InfraDegraded", "False", "InfraHealthy", fine),
            Judged("DegradedWorkloads", "False", "InfraHealthy", fine),
        )
    degraded = Judged("InfraDegraded", "True", failing[0].type, failing[0].message)
    if not held:
        return degraded, Judged("DegradedWorkloads", "False", "NoWorkloads", "no card of the node is in use")
    message = f"{failing[0].message}; pods go on with {named(held)}"
    return degraded, Judged("DegradedWorkloads", "True", failing[0].type, message)


def named(cards: Iterable[str]) -> str:
    """A few of them by name."""
    found = sorted(cards)
    more = len(found) - _MOST_NAMED
    return ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
