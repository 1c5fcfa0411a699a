"""Which nodes the scheduler filters out by fields of the Node object."""

import pytest

from croupier.core.pods import eligible
from croupier.core.pods.eligible import (
    CORDONED,
    MISMATCH,
    UNTOLERATED,
    Needs,
    NodeFacts,
    Requirement,
    Taint,
    Toleration,
)

FAST = NodeFacts("node-1", {"disk": "fast", "cores": "64"})
TAINT = Taint("gpu", "NoSchedule", "yes")
TAINTED = NodeFacts("node-1", taints=(TAINT,))
CLOSED = NodeFacts("node-1", cordoned=True)


def wants(key: str, operator: str, *values: str, of_name: bool = False) -> Needs:
    return Needs(terms=((Requirement(key, operator, values, of_name),),))


def tolerates(*args: str) -> Needs:
    return Needs(tolerations=(Toleration(*args),))


CASES = {
    "no constraint": (FAST, Needs(), ""),
    "cordoned": (CLOSED, Needs(), CORDONED),
    "cordoned, and tolerated": (CLOSED, tolerates("node.kubernetes.io/unschedulable", "Exists"), ""),
    "tainted": (TAINTED, Needs(), UNTOLERATED),
    "tolerated by value": (TAINTED, tolerates("gpu", "Equal", "yes"), ""),
    "tolerated with another value": (TAINTED, tolerates("gpu", "Equal", "no"), UNTOLERATED),
    "tolerated for another effect": (
        TAINTED,
        tolerates("gpu", "Exists", "", "NoExecute"),
        UNTOLERATED,
    ),
    "everything is tolerated": (TAINTED, tolerates("", "Exists"), ""),
    "PreferNoSchedule is ignored": (
        NodeFacts("n", taints=(Taint("gpu", "PreferNoSchedule"),)),
        Needs(),
        "",
    ),
    "selected": (FAST, Needs(selector={"disk": "fast"}), ""),
    "not selected": (FAST, Needs(selector={"disk": "slow"}), MISMATCH),
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
    "an empty term matches nothing": (FAST, Needs(terms=((),)), MISMATCH),
    "one of two terms": (
        FAST,
        Needs(terms=((Requirement("zone", "Exists"),), (Requirement("disk", "Exists"),))),
        "",
    ),
}


@pytest.mark.parametrize(("node", "needs", "said"), CASES.values(), ids=CASES)
def test_rejections(node, needs, said):
    assert eligible.obstacle(node, needs) == said
