"""Which nodes the scheduler filters out by fields of the Node object."""

import pytest

from croupier.core.pods import scheduler_filters
from croupier.core.pods.scheduler_filters import (
    CORDONED,
    MISMATCH,
    UNTOLERATED,
    CandidateNode,
    LabelRequirement,
    NodeConstraints,
    NodeTaint,
    PodToleration,
)

FAST = CandidateNode("node-1", {"disk": "fast", "cores": "64"})
TAINT = NodeTaint("gpu", "NoSchedule", "yes")
TAINTED = CandidateNode("node-1", taints=(TAINT,))
CLOSED = CandidateNode("node-1", cordoned=True)


def wants(key: str, operator: str, *values: str, of_name: bool = False) -> NodeConstraints:
    return NodeConstraints(terms=((LabelRequirement(key, operator, values, of_name),),))


def tolerates(*args: str) -> NodeConstraints:
    return NodeConstraints(tolerations=(PodToleration(*args),))


CASES = {
    "no constraint": (FAST, NodeConstraints(), ""),
    "cordoned": (CLOSED, NodeConstraints(), CORDONED),
    "cordoned, and tolerated": (CLOSED, tolerates("node.kubernetes.io/unschedulable", "Exists"), ""),
    "tainted": (TAINTED, NodeConstraints(), UNTOLERATED),
    "tolerated by value": (TAINTED, tolerates("gpu", "Equal", "yes"), ""),
    "tolerated with another value": (TAINTED, tolerates("gpu", "Equal", "no"), UNTOLERATED),
    "tolerated for another effect": (
        TAINTED,
        tolerates("gpu", "Exists", "", "NoExecute"),
        UNTOLERATED,
    ),
    "everything is tolerated": (TAINTED, tolerates("", "Exists"), ""),
    "PreferNoSchedule is ignored": (
        CandidateNode("n", taints=(NodeTaint("gpu", "PreferNoSchedule"),)),
        NodeConstraints(),
        "",
    ),
    "selected": (FAST, NodeConstraints(selector={"disk": "fast"}), ""),
    "not selected": (FAST, NodeConstraints(selector={"disk": "slow"}), MISMATCH),
    "in": (FAST, wants("disk", "In", "slow", "fast"), ""),
    "not in": (FAST, wants("disk", "NotIn", "fast"), MISMATCH),
    "not in, without the label": (FAST, wants("zone", "NotIn", "a"), ""),
    "exists": (FAST, wants("disk", "Exists"), ""),
    "does not exist": (FAST, wants("disk", "DoesNotExist"), MISMATCH),
    "greater": (FAST, wants("cores", "Gt", "32"), ""),
    "not less": (FAST, wants("cores", "Lt", "32"), MISMATCH),
    "no number": (FAST, wants("disk", "Gt", "32"), MISMATCH),
    "by name": (FAST, wants("metadata.name", "In", "node-1", of_name=True), ""),
    "not by name": (FAST, wants("metadata.name", "In", "node-2", of_name=True), MISMATCH),
    "an unknown operator": (FAST, wants("disk", "Like", "f*"), MISMATCH),
    "an empty term matches nothing": (FAST, NodeConstraints(terms=((),)), MISMATCH),
    "one of two terms": (
        FAST,
        NodeConstraints(terms=((LabelRequirement("zone", "Exists"),), (LabelRequirement("disk", "Exists"),))),
        "",
    ),
}


@pytest.mark.parametrize(("node", "needs", "said"), CASES.values(), ids=CASES)
def test_rejections(node, needs, said):
    assert scheduler_filters.rejection(node, needs) == said
