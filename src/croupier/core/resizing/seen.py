"""The inputs of a resize decision: the PodAllocation, its last status, and the pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from croupier.core.market import units
from croupier.core.market.terms import Shape
from croupier.core.quantity import ZERO, Quantity

Phase: TypeAlias = Literal["Pending", "Applied", "Failed"]
DUPLICATE: Final = "DuplicateAllocation"


@dataclass(frozen=True, slots=True)
class Container:
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
class Condition:
    """PodResizePending or PodResizeInProgress, set by the kubelet for one generation of the pod."""

    reason: str = ""
    message: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    uid: str
    containers: tuple[Container, ...]
    shape: Shape
    node: str = ""
    generation: int = 1
    observed: int = 1
    phase: str = "Running"
    terminating: bool = False
    pod_level: bool = False
    """The pod sets pod-level resources."""
    pending: Condition | None = None
    in_progress: Condition | None = None

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
class Told:
    """The status of the PodAllocation as it was last written."""

    phase: Phase = "Pending"
    word: str = ""
    sentence: str = ""
    uid: str = ""
    desired: Quantity | None = None
    generation: int | None = None
    originals: Mapping[str, Quantity] = field(default_factory=dict)
    restarts: int | None = None
    attempted: datetime | None = None


@dataclass(frozen=True, slots=True)
class Wish:
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
    told: Told = Told()

    def may_move(self, pod: "Pod") -> bool:
        """An agent may resize only pods of its own node, whatever it writes."""
        return self.pod_namespace == self.namespace and self.node in ("", pod.node) and self.is_of(pod.uid)

    def is_of(self, uid: str) -> bool:
        """False for an earlier pod of the same name."""
        return (self.owner or uid) == uid and (self.told.uid or uid) == uid

    @property
    def at_work(self) -> bool:
        """It has resized the pod before."""
        return bool(self.told.originals) and self.told.word != DUPLICATE


@dataclass(frozen=True, slots=True)
class Scene:
    """`rivals` are the other PodAllocations of the same pod. `due`: a failed resize may be retried now."""

    wish: Wish
    pod: Pod | None
    now: datetime
    rivals: tuple[Wish, ...] = ()
    due: bool = True
