"""Convert Node and Pod to what node affinity is decided by: labels, taints, selectors, tolerations."""

from croupier.api.core_v1 import Node, NodeSelectorRequirement, NodeSelectorTerm, Pod
from croupier.core.pods.scheduler_filters import (
    CandidateNode,
    LabelRequirement,
    NodeConstraints,
    NodeTaint,
    PodToleration,
)


def node_facts(node: Node) -> CandidateNode:
    return CandidateNode(
        name=node.metadata.name,
        labels=node.metadata.labels,
        taints=tuple(NodeTaint(taint.key, taint.effect, taint.value) for taint in node.spec.taints),
        cordoned=node.spec.unschedulable,
    )


def pod_needs(pod: Pod) -> NodeConstraints:
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    return NodeConstraints(
        selector=spec.node_selector,
        terms=None if required is None else tuple(_term(term) for term in required.node_selector_terms),
        tolerations=tuple(
            PodToleration(toleration.key, toleration.operator or "Equal", toleration.value, toleration.effect)
            for toleration in spec.tolerations
        ),
    )


def _term(term: NodeSelectorTerm) -> tuple[LabelRequirement, ...]:
    return (
        *(_requirement(expression) for expression in term.match_expressions),
        *(_requirement(field, of_name=True) for field in term.match_fields),
    )


def _requirement(requirement: NodeSelectorRequirement, *, of_name: bool = False) -> LabelRequirement:
    return LabelRequirement(requirement.key, requirement.operator, requirement.values, of_name)
