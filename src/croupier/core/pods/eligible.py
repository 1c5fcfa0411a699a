"""Which nodes the stock scheduler would offer us for a pod at all.

Only what it reads off the node itself: cordons, taints, selectors and node affinity, in its own words, so
that what is explained here can be compared with its Events. It alone decides, and looks at far
more (CPU, memory, spreading); here it is only foretold.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

CORDONED: Final = "node(s) were unschedulable"
UNTOLERATED: Final = "node(s) had untolerated taint(s)"
MISMATCH: Final = "node(s) didn't match Pod's node affinity/selector"

_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_FORBIDDING: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a label, or with `of_name` on the node's own name."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    of_name: bool = False


@dataclass(frozen=True, slots=True)
class NodeFacts:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Needs:
    """What a pod says about nodes. Every label of `selector`, and one of `terms` where there are any."""

    selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[tuple[Requirement, ...], ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


def obstacle(node: NodeFacts, needs: Needs) -> str:
    """Why the node is out of question; empty if it is not."""
    if node.cordoned and not _tolerated(Taint(_UNSCHEDULABLE, "NoSchedule"), needs.tolerations):
        return CORDONED
    for taint in node.taints:
        if taint.effect in _FORBIDDING and not _tolerated(taint, needs.tolerations):
            return UNTOLERATED
    return "" if _matches(node, needs) else MISMATCH


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(one.covers(taint) for one in tolerations)


def _matches(node: NodeFacts, needs: Needs) -> bool:
    if any(node.labels.get(key) != value for key, value in needs.selector.items()):
        return False
    if needs.terms is None:
        return True
    return any(term and all(_meets(node, one) for one in term) for term in needs.terms)


def _meets(node: NodeFacts, wanted: Requirement) -> bool:
    """As Kubernetes reads it: an operator nobody knows matches no node."""
    has = node.name if wanted.of_name else node.labels.get(wanted.key)
    match wanted.operator:
        case "In":
            return has in wanted.values
        case "NotIn":
            return has not in wanted.values
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case "Gt" | "Lt":
            return _compares(has, wanted)
        case _:
            return False


def _compares(has: str | None, wanted: Requirement) -> bool:
    try:
        ours, theirs = int(has or ""), int(wanted.values[0])
    except (ValueError, IndexError):
        return False
    return ours > theirs if wanted.operator == "Gt" else ours < theirs
