"""Convert Node and Pod to what node affinity is decided by: labels, taints, selectors, tolerations."""

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
            Toleration(toleration.key, toleration.operator or "Equal", toleration.value, toleration.effect)
            for toleration in spec.tolerations
        ),
    )


def _term(term: NodeSelectorTerm) -> tuple[Requirement, ...]:
    return (
        *(_requirement(expression) for expression in term.match_expressions),
        *(_requirement(field, of_name=True) for field in term.match_fields),
    )


def _requirement(requirement: NodeSelectorRequirement, *, of_name: bool = False) -> Requirement:
    return Requirement(requirement.key, requirement.operator, requirement.values, of_name)
