"""A node and a pod's wishes about nodes, as far as they tell which nodes are out of question."""

from croupier.api.core_v1 import Node, NodeSelectorRequirement, NodeSelectorTerm, Pod
from croupier.core.pods.eligible import Needs, NodeFacts, Requirement, Taint, Toleration


def facts(node: Node) -> NodeFacts:
    return NodeFacts(
        name=node.metadata.name,
        labels=node.metadata.labels,
        taints=tuple(Taint(taint.key, taint.effect, taint.value) for taint in node.spec.taints),
        cordoned=node.spec.unschedulable,
    )


def needs(pod: Pod) -> Needs:
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    return Needs(
        selector=spec.node_selector,
        terms=None if required is None else tuple(_term(term) for term in required.node_selector_terms),
        tolerations=tuple(
            Toleration(one.key, one.operator or "Equal", one.value, one.effect) for one in spec.tolerations
        ),
    )


def _term(term: NodeSelectorTerm) -> tuple[Requirement, ...]:
    return (
        *(_requirement(one) for one in term.match_expressions),
        *(_requirement(one, of_name=True) for one in term.match_fields),
    )


def _requirement(one: NodeSelectorRequirement, *, of_name: bool = False) -> Requirement:
    return Requirement(one.key, one.operator, one.values, of_name)
