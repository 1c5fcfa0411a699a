"""Predicts which nodes kube-scheduler filters out before it calls the extender.

Only filters on the Node object itself: cordon, taints, node selector and node affinity, with the messages of
kube-scheduler, so that explanations match its Events. The scheduler checks much more (CPU, memory, topology
spread); this module only predicts its result.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

CORDONED: Final = "node(s) were unschedulable"
UNTOLERATED: Final = "node(s) had untolerated taint(s)"
MISMATCH: Final = "node(s) didn't match Pod's node affinity/selector"

_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_BLOCKING_EFFECTS: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class NodeTaint:
    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


@dataclass(frozen=True, slots=True)
class PodToleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: NodeTaint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """A requirement on a label, or with `of_name` on the name of a node."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    of_name: bool = False

    def is_met(self, value: str | None) -> bool:
        """Whether the label may have this value. An unknown operator is never met, as in Kubernetes."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
            case _:
                return False

    def _compares(self, value: str | None) -> bool:
        try:
            actual, bound = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return actual > bound if self.operator == "Gt" else actual < bound


@dataclass(frozen=True, slots=True)
class CandidateNode:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[NodeTaint, ...] = ()
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """The node constraints of a pod: all labels of `selector`, and at least one of `terms` if set."""

    selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[tuple[LabelRequirement, ...], ...] | None = None
    tolerations: tuple[PodToleration, ...] = ()


def rejection(node: CandidateNode, needs: NodeConstraints) -> str:
    """Why the scheduler rejects the node; empty if it does not."""
    if node.cordoned and not _tolerated(NodeTaint(_UNSCHEDULABLE, "NoSchedule"), needs.tolerations):
        return CORDONED
    for taint in node.taints:
        if taint.effect in _BLOCKING_EFFECTS and not _tolerated(taint, needs.tolerations):
            return UNTOLERATED
    return "" if _matches(node, needs) else MISMATCH


def _tolerated(taint: NodeTaint, tolerations: Iterable[PodToleration]) -> bool:
    return any(toleration.covers(taint) for toleration in tolerations)


def _matches(node: CandidateNode, needs: NodeConstraints) -> bool:
    if any(node.labels.get(key) != value for key, value in needs.selector.items()):
        return False
    if needs.terms is None:
        return True
    return any(term and all(_satisfies(node, requirement) for requirement in term) for term in needs.terms)


def _satisfies(node: CandidateNode, requirement: LabelRequirement) -> bool:
    return requirement.is_met(node.name if requirement.of_name else node.labels.get(requirement.key))
