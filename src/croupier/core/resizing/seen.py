"""What is known when the fate of a PodAllocation is decided: the wish, the pod, and what was said before."""

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
    """One that bears a limit. `reported` is what the kubelet says it enforces."""

    name: str
    limit: Quantity
    request: Quantity = ZERO
    reported: Quantity | None = None
    state: str = ""
    """Why it is not running; empty while it runs."""
    restarts: int = 0
    restarting: bool = False
    """Its resizePolicy restarts it when CPU changes, so a restart is no surprise."""
    sidecar: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """PodResizePending or PodResizeInProgress, as the kubelet set it for one generation of the pod."""

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
    """It has resources of its own, beside those of its containers."""
    pending: Condition | None = None
    in_progress: Condition | None = None

    @property
    def reported(self) -> Quantity | None:
        """The limit in force; None as long as the kubelet has not told it for every container."""
        amounts = [one.reported for one in self.containers]
        return None if None in amounts or not amounts else sum((one for one in amounts if one), ZERO)

    @property
    def restarts(self) -> int:
        """Those that nobody asked for."""
        return sum(one.restarts for one in self.containers if not one.restarting)

    @property
    def floors(self) -> dict[str, int]:
        """In quanta, what each container may not fall below."""
        guaranteed = self.shape.qos == "Guaranteed"
        return {one.name: 1 if guaranteed else max(1, units.at_least(one.request)) for one in self.containers}


@dataclass(frozen=True, slots=True)
class Told:
    """What the status says, from an earlier look."""

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
    """A PodAllocation. `owner` is the uid of the pod that owns it, if one does."""

    namespace: str
    name: str
    pod: str
    desired: Quantity
    created: datetime
    pod_namespace: str = ""
    generation: int = 1
    owner: str = ""
    node: str = ""
    """Whose agent wrote it; empty if a person did."""
    told: Told = Told()

    def may_move(self, pod: "Pod") -> bool:
        """An agent has a say on its own node alone, whatever it writes."""
        return self.pod_namespace == self.namespace and self.node in ("", pod.node) and self.is_of(pod.uid)

    def is_of(self, uid: str) -> bool:
        """Not of an earlier pod of the same name."""
        return (self.owner or uid) == uid and (self.told.uid or uid) == uid

    @property
    def at_work(self) -> bool:
        """It has decided for the pod before."""
        return bool(self.told.originals) and self.told.word != DUPLICATE


@dataclass(frozen=True, slots=True)
class Scene:
    """`rivals` are the other PodAllocations of the same pod. `due`: what failed may be tried again now."""

    wish: Wish
    pod: Pod | None
    now: datetime
    rivals: tuple[Wish, ...] = ()
    due: bool = True
