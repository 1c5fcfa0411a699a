"""The inputs of a resize decision: the PodAllocation, its last status, and the pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from croupier.core.market import units
from croupier.core.market.terms import PodShape
from croupier.core.model.phase import AllocationPhase
from croupier.core.model.reason import Reason
from croupier.core.quantity import ZERO, Quantity

DUPLICATE: Final = "DuplicateAllocation"
TOO_MANY: Final = "TooManyAllocations"
RETRIED: Final = frozenset(
    {
        "Infeasible",
        "ForeignWriter",
        "QuotaExceeded",
        "LimitRange",
        "NotPermitted",
        "NodeCapacity",
        "Refused",
        "Invalid",
        "Conflict",
        "NoResize",
        "Unavailable",
    }
)
"""Reasons that are retried with backoff: no event reports that the cause is gone."""


@dataclass(frozen=True, slots=True)
class ResizeContainer:
    """A container with a CPU limit. `reported` is the limit that the kubelet enforces."""

    name: str
    limit: Quantity
    request: Quantity = ZERO
    reported: Quantity | None = None
    state: str = ""
    """Why it is not running; empty while it runs."""
    restarts: int = 0
    restarting: bool = False
    """Its resizePolicy restarts it when CPU changes, so a restart is expected."""
    sidecar: bool = False


@dataclass(frozen=True, slots=True)
class ResizeCondition:
    """PodResizePending or PodResizeInProgress, set by the kubelet for one generation of the pod."""

    reason: str = ""
    message: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class ResizePod:
    uid: str
    containers: tuple[ResizeContainer, ...]
    shape: PodShape
    node: str = ""
    generation: int = 1
    observed: int = 1
    phase: str = "Running"
    terminating: bool = False
    pod_level: bool = False
    """The pod sets pod-level resources."""
    pending: ResizeCondition | None = None
    in_progress: ResizeCondition | None = None

    @property
    def reported(self) -> Quantity | None:
        """The limit in force; None until the kubelet has reported it for every container."""
        amounts = [container.reported for container in self.containers]
        return None if None in amounts or not amounts else sum((amount for amount in amounts if amount), ZERO)

    @property
    def restarts(self) -> int:
        """Restarts that no resizePolicy explains."""
        return sum(container.restarts for container in self.containers if not container.restarting)

    @property
    def floors(self) -> dict[str, int]:
        """In quanta, the lowest limit of each container."""
        guaranteed = self.shape.qos == "Guaranteed"
        return {
            container.name: 1 if guaranteed else max(1, units.at_least(container.request))
            for container in self.containers
        }


@dataclass(frozen=True, slots=True)
class ResizeVerdict:
    phase: AllocationPhase
    reason: Reason

    @property
    def code(self) -> str:
        return self.reason.code

    @property
    def retried(self) -> bool:
        return self.code in RETRIED


_NO_VERDICT: Final = ResizeVerdict("Pending", Reason())


@dataclass(frozen=True, slots=True)
class LastStatus:
    """The status of the PodAllocation as it was last written."""

    verdict: ResizeVerdict = _NO_VERDICT
    uid: str = ""
    desired: Quantity | None = None
    generation: int | None = None
    originals: Mapping[str, Quantity] = field(default_factory=dict)
    restarts: int | None = None
    attempted: datetime | None = None


@dataclass(frozen=True, slots=True)
class DesiredLimit:
    """A PodAllocation. `owner` is the UID of the pod that owns it, if there is one."""

    namespace: str
    name: str
    pod: str
    desired: Quantity
    created: datetime
    pod_namespace: str = ""
    generation: int = 1
    owner: str = ""
    node: str = ""
    """The node whose market agent wrote it; empty if it was written by hand."""
    last_status: LastStatus = LastStatus()

    def may_resize(self, pod: "ResizePod") -> bool:
        """An agent may resize only pods of its own node, whatever it writes."""
        return self.pod_namespace == self.namespace and self.node in ("", pod.node) and self.is_of(pod.uid)

    def is_of(self, uid: str) -> bool:
        """False for an earlier pod of the same name."""
        return (self.owner or uid) == uid and (self.last_status.uid or uid) == uid

    @property
    def is_active(self) -> bool:
        """It has resized the pod before."""
        return bool(self.last_status.originals) and self.last_status.verdict.code != DUPLICATE


@dataclass(frozen=True, slots=True)
class AllocationLimit:
    """The older PodAllocations of a pod or a namespace are more than `most`, so this one does not count."""

    where: str
    """`pod web` or `namespace team-a`."""
    most: int
    remedy: str = ""
    """What an operator can do."""


@dataclass(frozen=True, slots=True)
class ResizeInputs:
    """`rivals` are the other PodAllocations of the same pod. `due`: a failed resize may be retried now."""

    desired_limit: DesiredLimit
    pod: ResizePod | None
    now: datetime
    rivals: tuple[DesiredLimit, ...] = ()
    due: bool = True
    exceeded: AllocationLimit | None = None
    """The limit that this PodAllocation exceeds; then `pod` and `rivals` were not read."""
