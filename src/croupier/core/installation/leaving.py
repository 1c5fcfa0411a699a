"""What an installation leaves in a cluster, and the order in which it can be taken away without harm.

Registrations first: a webhook that must answer and is gone refuses pods, and a policy would refuse us the
rest. Then the processes: whoever runs puts back what is taken away. Then finalizers, because nobody is left
who would lift them; then marks on nodes, then what was kept in our namespace. Running pods go on: of them
nothing is touched. The kinds and their objects stay unless that is asked for: they are what people wrote.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

Stage: TypeAlias = Literal[
    "webhook", "binding", "policy", "process", "reservation", "pool", "node", "kept", "definition"
]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
"""In the order in which they go."""
NAMED: Final = 3
"""Of many of a kind so many are named."""


@dataclass(frozen=True, slots=True)
class Remnant:
    """Something of ours. `blocks`: it would keep something from being deleted, or pods from starting."""

    stage: Stage
    kind: str
    name: str
    what: str
    blocks: bool = False

    @property
    def where(self) -> str:
        return f"{self.kind} {self.name}"


def ordered(remnants: Iterable[Remnant]) -> tuple[Remnant, ...]:
    return tuple(sorted(remnants, key=lambda one: (STAGES.index(one.stage), one.kind, one.name)))


def plan(remnants: Iterable[Remnant], *, with_kinds: bool = False) -> tuple[Remnant, ...]:
    """What is to be taken away, first things first."""
    return tuple(one for one in ordered(remnants) if with_kinds or one.stage != "definition")


def staying(remnants: Iterable[Remnant], *, with_kinds: bool = False) -> tuple[Remnant, ...]:
    return () if with_kinds else tuple(one for one in ordered(remnants) if one.stage == "definition")


def webhook(kind: str, name: str, failing: Iterable[str]) -> Remnant:
    refuses = sorted(failing)
    what = (
        f"refuses pods while nobody answers (failurePolicy Fail: {', '.join(refuses)})"
        if refuses
        else "asks a webhook that is gone about new pods"
    )
    return Remnant("webhook", kind, name, what, blocks=bool(refuses))


def policy(kind: str, name: str) -> Remnant:
    binds = kind.endswith("Binding")
    what = "puts our policy in force" if binds else "refuses changes of what our processes managed"
    return Remnant("binding" if binds else "policy", kind, name, what, blocks=binds)


def process(kind: str, name: str) -> Remnant:
    return Remnant("process", kind, name, "runs, and would put back what is taken away")


def reservation(key: str, *, deleted: bool) -> Remnant:
    return Remnant("reservation", "Reservation", key, _held(deleted), blocks=True)


def pool(name: str, *, deleted: bool) -> Remnant:
    return Remnant("pool", "GPUPool", name, _held(deleted), blocks=True)


def _held(deleted: bool) -> str:
    held = "our finalizer, which nobody lifts when we are gone"
    return f"its deletion waits for {held}" if deleted else f"carries {held}"


@dataclass(frozen=True, slots=True)
class Marks:
    """What we left on a node."""

    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.labels, self.taints, self.conditions, self.resources))


def node(name: str, marks: Marks) -> Remnant:
    """A taint keeps pods away, and a resource that nobody serves draws pods that then cannot start."""
    told = {
        "labels": marks.labels,
        "taints": marks.taints,
        "conditions": marks.conditions,
        "resources": marks.resources,
    }
    what = "; ".join(f"{word} {_shortened(found)}" for word, found in told.items() if found)
    return Remnant("node", "Node", name, what, blocks=bool(marks.taints or marks.resources))


def _shortened(names: tuple[str, ...]) -> str:
    """An agent writes dozens of labels; nobody reads them all."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def kept(kind: str, key: str, what: str) -> Remnant:
    return Remnant("kept", kind, key, what)


def definition(name: str, objects: int) -> Remnant:
    what = "no objects" if not objects else f"{objects} object{'s' if objects > 1 else ''}"
    return Remnant("definition", "CRD", name, what)
