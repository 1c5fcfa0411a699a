"""The objects that an installation leaves in a cluster, and a safe order to remove them.

Webhook configurations and policies go first: a configuration without its webhook blocks pods, and a policy
would refuse the next steps. Then the processes, which would recreate what is removed. Then finalizers,
because no controller is left to remove them; then labels, taints and conditions of nodes, then the objects
in Croupier's namespace. Running pods are not touched. CRDs and their objects stay unless requested, because
they hold user data.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from croupier.core.model import name_list

Stage: TypeAlias = Literal[
    "webhook", "binding", "policy", "process", "reservation", "pool", "node", "kept", "definition"
]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
"""In the order of removal."""
MAX_NAMES: Final = 3
"""How many names a list shows."""
_STAYING: Final = ("reservation", "pool", "node")


@dataclass(frozen=True, slots=True)
class Remnant:
    """A remaining object. `blocks`: it prevents deletions or keeps pods from starting."""

    stage: Stage
    kind: str
    name: str
    what: str
    blocks: bool = False

    @property
    def where(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def stays(self) -> bool:
        """The object is not deleted: it only loses Croupier's finalizer or marks."""
        return self.stage in _STAYING

    @property
    def loss(self) -> str:
        """What is taken from an object that stays."""
        return self.what if self.stage == "node" else "the finalizer"

    @property
    def report(self) -> str:
        """What was done, after it was done."""
        return f"removed {self.loss} from {self.where}" if self.stays else f"deleted {self.where}"


def ordered(remnants: Iterable[Remnant]) -> tuple[Remnant, ...]:
    return tuple(
        sorted(remnants, key=lambda remnant: (STAGES.index(remnant.stage), remnant.kind, remnant.name))
    )


def plan(remnants: Iterable[Remnant], *, with_kinds: bool = False) -> tuple[Remnant, ...]:
    """What is to be removed, in order."""
    return tuple(remnant for remnant in ordered(remnants) if with_kinds or remnant.stage != "definition")


def remaining(remnants: Iterable[Remnant], *, with_kinds: bool = False) -> tuple[Remnant, ...]:
    if with_kinds:
        return ()
    return tuple(remnant for remnant in ordered(remnants) if remnant.stage == "definition")


def webhook(kind: str, name: str, failing: Iterable[str]) -> Remnant:
    refuses = sorted(failing)
    what = (
        f"refuses pods while the webhook does not run (failurePolicy Fail: {', '.join(refuses)})"
        if refuses
        else "calls a removed webhook for new pods"
    )
    return Remnant("webhook", kind, name, what, blocks=bool(refuses))


def policy(kind: str, name: str) -> Remnant:
    binds = kind.endswith("Binding")
    what = "enforces Croupier's policy" if binds else "has rules about objects that Croupier managed"
    return Remnant("binding" if binds else "policy", kind, name, what, blocks=binds)


def process(kind: str, name: str) -> Remnant:
    return Remnant("process", kind, name, "is running and would recreate removed objects")


def reservation(key: str, *, deleted: bool) -> Remnant:
    return Remnant("reservation", "Reservation", key, _finalizer_text(deleted), blocks=True)


def pool(name: str, *, deleted: bool) -> Remnant:
    return Remnant("pool", "GPUPool", name, _finalizer_text(deleted), blocks=True)


def _finalizer_text(deleted: bool) -> str:
    held = "Croupier's finalizer, which no other controller removes"
    return f"its deletion is blocked by {held}" if deleted else f"has {held}"


@dataclass(frozen=True, slots=True)
class NodeRemnants:
    """Croupier's labels, taints, conditions and resources on a node."""

    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.labels, self.taints, self.conditions, self.resources))


def node(name: str, marks: NodeRemnants) -> Remnant:
    """A taint repels pods, and a resource without a device plugin attracts pods that cannot start."""
    groups = {
        "label": marks.labels,
        "taint": marks.taints,
        "condition": marks.conditions,
        "resource": marks.resources,
    }
    what = "; ".join(name_list.introduced(noun, names, MAX_NAMES) for noun, names in groups.items() if names)
    return Remnant("node", "Node", name, what, blocks=bool(marks.taints or marks.resources))


def kept(kind: str, key: str, what: str) -> Remnant:
    return Remnant("kept", kind, key, what)


def definition(name: str, objects: int) -> Remnant:
    what = "no objects" if not objects else name_list.counted(objects, "object")
    return Remnant("definition", "CRD", name, what)
