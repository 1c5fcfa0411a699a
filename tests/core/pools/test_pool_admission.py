"""Pool admission: access, refusals, and the scheduling hints of admitted pods."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core import jsonpatch
from croupier.core.model.refusal import Refusal
from croupier.core.pods.request_parser import CARDS, GPU, POOL, RATIO
from croupier.core.pods.scheduler_filters import (
    CandidateNode,
    LabelRequirement,
    NodeConstraints,
    NodeTaint,
    PodToleration,
    rejection,
)
from croupier.core.pools import admission as pool_admission
from croupier.core.pools.admission import (
    AdmissionPool,
    PodRequester,
    PoolAccess,
    PoolAdmitted,
)
from croupier.core.pools.hints import NODE_LABEL, POD_LABEL, REQUEST_ID

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OURS = {"key": f"{NODE_LABEL}team-a", "operator": "Exists"}
ALICE = PodRequester("ml", "trainer", "alice", ("ml-people", "system:authenticated"))
CONTROLLER = replace(ALICE, user="system:serviceaccount:kube-system:job-controller", groups=("a", "b"))
TEAM_A = AdmissionPool("team-a", total=8, per_pod=8, unit="Card")
SHARES = AdmissionPool("team-a", total=400, per_pod=400, unit="Percent", modes=("Percent",))

Raw = dict[str, Any]


def pod(*asks: dict[str, Any], early: tuple[dict[str, Any], ...] = (), **spec: Any) -> Raw:
    """One container for each of `asks`, with these requests by pool."""
    containers = [container(f"c{number}", one) for number, one in enumerate(asks or ({"team-a": 1},))]
    before = [container(f"i{number}", one) for number, one in enumerate(early)]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": before, **spec}}


def container(name: str, pools: dict[str, Any]) -> Raw:
    amounts = {one if "/" in one else f"{POOL}{one}": str(count) for one, count in pools.items()}
    return {"name": name, "resources": {"limits": amounts, "requests": amounts}}


def decide(asked: Raw, *pools: AdmissionPool, asker: PodRequester = ALICE, request_id: str = "id-1") -> Any:
    known = {one.name: one for one in pools or (TEAM_A,)}
    return pool_admission.decide(asked, asker, known.get, request_id=request_id)


def admitted(asked: Raw, *pools: AdmissionPool, asker: PodRequester = ALICE) -> Raw:
    decision = decide(asked, *pools, asker=asker)
    assert isinstance(decision, PoolAdmitted), decision
    after: Raw = jsonpatch.apply(asked, decision.operations)
    return after


def terms(found: Raw) -> list[Raw]:
    required: list[Raw] = found["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return required


def affinity(*alternatives: Raw) -> Raw:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(alternatives)}}}


WAYS_IN = {
    "everyone": PoolAccess(),
    "its namespace": PoolAccess(namespaces=frozenset(("other", "ml"))),
    "its service account": PoolAccess(accounts=frozenset(("ml/trainer",))),
    "a group of its creator": PoolAccess(groups=frozenset(("ml-people",))),
    "any of several": PoolAccess(frozenset(("other",)), frozenset(("x/y",)), frozenset(("ml-people",))),
}
STRANGERS = {
    "another namespace": PoolAccess(namespaces=frozenset(("other",))),
    "an account of that name elsewhere": PoolAccess(accounts=frozenset(("other/trainer",))),
    "another account of the namespace": PoolAccess(accounts=frozenset(("ml/default",))),
    "another group": PoolAccess(groups=frozenset(("ops",))),
    "a group named like the namespace": PoolAccess(groups=frozenset(("ml",))),
    "a namespace named like the group": PoolAccess(namespaces=frozenset(("ml-people",))),
}


@pytest.mark.parametrize("access", WAYS_IN.values(), ids=WAYS_IN)
def test_pods_with_access(access):
    assert isinstance(decide(pod(), replace(TEAM_A, access=access)), PoolAdmitted)


@pytest.mark.parametrize("access", STRANGERS.values(), ids=STRANGERS)
def test_pods_without_access(access):
    decision = decide(pod(), replace(TEAM_A, access=access))

    assert isinstance(decision, Refusal)
    assert decision.reason.startswith(
        "AccessDenied: pool team-a is open neither to namespace ml nor to service account ml/trainer"
    )
    assert decision.reason.endswith("added to spec.access of GPUPool team-a")


def test_a_deployment_learns_that_user_groups_do_not_apply():
    decision = decide(pod(), replace(TEAM_A, access=STRANGERS["another group"]), asker=CONTROLLER)

    assert decision.reason == (
        "AccessDenied: pool team-a is open neither to namespace ml nor to service account ml/trainer; "
        "user groups do not apply, because service account kube-system/job-controller created the pod, "
        "as for a Deployment or Job: have the namespace or the pod's service account "
        "added to spec.access of GPUPool team-a"
    )


MAINTAINED = pool_admission.closed_reason("team-a", {"Maintenance": "2 pods still run."}, deleting=False)
REFUSED = {
    "two pools": (
        pod({"team-a": 1}, {"team-b": 1}),
        TEAM_A,
        "MixedPoolRequest: the pod asks for pools team-a",
    ),
    "two pools, one of them before": (
        pod({"team-a": 1}, early=({"team-b": 1},)),
        TEAM_A,
        "MixedPoolRequest: the pod asks for pools team-a and team-b",
    ),
    "an unknown pool": (pod({"teem-a": 1}), TEAM_A, 'UnknownPool: GPUPool "teem-a"'),
    "a pool in maintenance": (
        pod(),
        replace(TEAM_A, closed=MAINTAINED),
        "Maintenance: pool team-a is in maintenance and accepts no new pods: 2 pods still run; create",
    ),
    "more than one node can ever provide": (
        pod({"team-a": 5}, {"team-a": 4}),
        replace(TEAM_A, total=16),
        "InsufficientCapacity: the pod requests 9 of gpu.deckhouse.io/team-a, but one node can provide "
        "at most 8 (counted in Card), and a pod gets all its units on one node; request less",
    ),
    "a request of an empty pool": (
        pod(),
        replace(TEAM_A, total=0, per_pod=0),
        "InsufficientCapacity: the pod requests 1 of",
    ),
    "more than a card, but not whole cards": (
        pod({"team-a": 150}),
        SHARES,
        "InvalidRequest: 150 % is neither a part of one card nor a number of whole cards; "
        "set gpu.mps.io/cards to the number of cards and gpu.mps.io/ratio to the percent of each",
    ),
    "parts of more cards than a node has": (
        pod({"team-a": 50}) | {"metadata": {"annotations": {CARDS: "5", RATIO: "10"}}},
        SHARES,
        "InsufficientCapacity: the pod requests 10 % of 5 cards of pool team-a, but one node can provide "
        "at most 4 different cards",
    ),
    "a fraction": (pod({"team-a": "500m"}), TEAM_A, "the request of gpu.deckhouse.io/team-a is 500m"),
    "contradicting annotations": (
        pod({"team-a": 5}) | {"metadata": {"annotations": {CARDS: "2", RATIO: "50"}}},
        TEAM_A,
        "the pod asks for 5 of gpu.deckhouse.io/team-a, but its annotations say",
    ),
    "a node selector with another value": (
        pod(nodeSelector={OURS["key"]: "yes"}),
        TEAM_A,
        "SchedulingConflict: spec.nodeSelector requires pool.gpu.deckhouse.io/team-a",
    ),
    "a conflicting affinity": (
        pod(affinity=affinity({"matchExpressions": [{"key": OURS["key"], "operator": "DoesNotExist"}]})),
        TEAM_A,
        f"SchedulingConflict: the node affinity of the pod excludes nodes with the label {NODE_LABEL}team-a",
    ),
    "a conflicting term": (
        pod(
            affinity=affinity(
                {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                {"matchExpressions": [{"key": OURS["key"], "operator": "NotIn", "values": [""]}]},
            )
        ),
        TEAM_A,
        "SchedulingConflict: the node affinity",
    ),
    "the label of another pool": (
        pod() | {"metadata": {"labels": {POD_LABEL: "team-b"}}},
        TEAM_A,
        "SchedulingConflict: the pod requests pool team-a but is labelled gpu.deckhouse.io/pool=team-b",
    ),
    "an invalid pod": ({"spec": {"containers": "many"}}, TEAM_A, "spec.containers must be a list"),
    "invalid tolerations": (
        pod(tolerations="all"),
        TEAM_A,
        "SchedulingConflict: tolerations must be a list",
    ),
    "an invalid affinity": (
        pod(affinity="none"),
        TEAM_A,
        "SchedulingConflict: spec.affinity must be a mapping",
    ),
    "an invalid node affinity": (
        pod(affinity={"nodeAffinity": ["zone"]}),
        TEAM_A,
        "SchedulingConflict: spec.affinity.nodeAffinity must be a mapping",
    ),
}


@pytest.mark.parametrize(("asked", "pool", "sentence"), REFUSED.values(), ids=REFUSED)
def test_refusals(asked, pool, sentence):
    kept = deepcopy(asked)
    decision = decide(
        asked, replace(pool, taints=(NodeTaint("a", "NoSchedule"),)), AdmissionPool("team-b", total=8)
    )

    assert isinstance(decision, Refusal), decision
    assert decision.reason.startswith(sentence)
    assert asked == kept


WAITS = {
    "for cards that are unavailable now": (
        pod({"team-a": 4}),
        replace(TEAM_A, total=0, unavailable="of 2 of 2 cards: the agent of its node is silent"),
        "the pod waits for pool team-a: of 2 of 2 cards: the agent of its node is silent",
    ),
    "for more cards": (
        pod({"team-a": 4}),
        replace(TEAM_A, total=2),
        "the pod waits for pool team-a: the pool has 2 of the 4 units now",
    ),
    "for cards that are not counted yet": (
        pod({"team-a": 4}),
        replace(TEAM_A, total=2, per_pod=None),
        "the pod waits for pool team-a: the pool has 2 of the 4 units now",
    ),
}


@pytest.mark.parametrize(("asked", "pool", "warning"), WAITS.values(), ids=WAITS)
def test_a_pod_waits_with_the_reason_for_what_the_pool_could_give(asked, pool, warning):
    decision = decide(asked, pool)

    assert isinstance(decision, PoolAdmitted)
    assert decision.warnings == (warning,)


CLEAR_SHARES = {
    "a part of a card": (pod({"team-a": 50}), SHARES),
    "whole cards": (pod({"team-a": 300}), SHARES),
    "parts of cards by annotation": (
        pod({"team-a": 150}) | {"metadata": {"annotations": {CARDS: "3", RATIO: "50"}}},
        SHARES,
    ),
    "not percent": (pod({"team-a": 150}), AdmissionPool("team-a", total=512, per_pod=512, unit="TimeSlice")),
}


@pytest.mark.parametrize(("asked", "pool"), CLEAR_SHARES.values(), ids=CLEAR_SHARES)
def test_requests_that_fit_on_one_node(asked, pool):
    assert isinstance(decide(asked, pool), PoolAdmitted)


UNCONCERNED = {
    "no cards": pod({"cpu/": 1}),
    "cards of no pool": pod({GPU: 1}),
    "zero of a pool": pod({"team-a": 0}),
    "zero of an unknown pool": pod({"nowhere": 0, GPU: 1}),
}


@pytest.mark.parametrize("asked", UNCONCERNED.values(), ids=UNCONCERNED)
def test_pods_without_a_pool(asked):
    assert decide(asked) is None


def test_access_is_checked_before_the_state_of_the_pool():
    private = replace(TEAM_A, access=STRANGERS["another group"], closed=MAINTAINED, total=0)

    assert decide(pod(), private).reason.startswith("AccessDenied")


CLOSED = {
    "open": ({}, False, ""),
    "other conditions": ({"Available": "", "CapacityLow": ""}, False, ""),
    "maintenance": (
        {"Maintenance": ""},
        False,
        "Maintenance: pool a is in maintenance and accepts no new pods",
    ),
    "drift before maintenance": (
        {"Maintenance": "x", "Misconfigured": "cut otherwise"},
        False,
        "Misconfigured: pool a is misconfigured and accepts no new pods: cut otherwise",
    ),
    "deleting": ({"Maintenance": "x"}, True, "PoolTerminating: pool a is being deleted"),
}


@pytest.mark.parametrize(("conditions", "deleting", "sentence"), CLOSED.values(), ids=CLOSED)
def test_when_a_pool_is_closed(conditions, deleting, sentence):
    assert pool_admission.closed_reason("a", conditions, deleting=deleting) == sentence


def test_added_hints():
    dear = NodeTaint("gpu", "NoSchedule", "dear")

    after = admitted(pod(), replace(TEAM_A, taints=(dear,), spread_over=ZONE))

    assert after["metadata"] == {
        "name": "p",
        "labels": {POD_LABEL: "team-a"},
        "annotations": {REQUEST_ID: "id-1"},
    }
    assert terms(after) == [{"matchExpressions": [OURS]}]
    assert after["spec"]["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "dear", "effect": "NoSchedule"}
    ]
    assert after["spec"]["topologySpreadConstraints"] == [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {POD_LABEL: "team-a"}},
        }
    ]


def test_every_term_requires_the_pool_and_an_empty_term_stays_empty():
    there = {"key": "zone", "operator": "In", "values": ["a"]}
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}

    after = admitted(pod(affinity=affinity({"matchExpressions": [there]}, by_name, {})))

    assert terms(after) == [
        {"matchExpressions": [there, OURS]},
        {**by_name, "matchExpressions": [OURS]},
        {},
    ]


def test_a_term_that_the_api_server_refuses_is_left_to_it():
    invalid: Any = "zone=a"

    assert terms(admitted(pod(affinity=affinity(invalid)))) == [invalid]


def test_existing_spread_constraints_and_tolerations_are_kept():
    said = {"maxSkew": 3, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    tolerates = [{"operator": "Exists"}]

    after = admitted(
        pod(topologySpreadConstraints=[said], tolerations=tolerates),
        replace(TEAM_A, taints=(NodeTaint("gpu", "NoExecute"),), spread_over=ZONE),
    )

    assert after["spec"]["topologySpreadConstraints"] == [said]
    assert after["spec"]["tolerations"] == tolerates


def test_an_existing_request_id_is_replaced():
    copied = pod() | {"metadata": {"annotations": {REQUEST_ID: "old", "note": "mine"}}}

    assert admitted(copied)["metadata"]["annotations"] == {REQUEST_ID: "id-1", "note": "mine"}


def test_a_pool_with_unknown_capacity_admits_with_a_warning():
    decision = decide(pod({"team-a": 100}), replace(TEAM_A, total=None, per_pod=None))

    assert isinstance(decision, PoolAdmitted)
    assert decision.warnings == (
        "the capacity of pool team-a is not known yet; the pod waits until the pool has cards",
    )


KEYS = st.sampled_from([OURS["key"], "zone", f"{NODE_LABEL}team-b"])
VALUES = st.sampled_from(["", "a", "b"])
EXPRESSIONS = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    KEYS,
    st.sampled_from(["In", "NotIn"]),
    st.lists(VALUES, min_size=1, max_size=2),
) | st.builds(
    lambda key, operator: {"key": key, "operator": operator},
    KEYS,
    st.sampled_from(["Exists", "DoesNotExist"]),
)
TERMS = st.fixed_dictionaries({}, optional={"matchExpressions": st.lists(EXPRESSIONS, max_size=2)})
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.builds(NodeTaint, st.sampled_from(["gpu", "team"]), EFFECTS, VALUES)
TOLERATIONS = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["gpu", "team"]),
        "operator": st.sampled_from(["Equal", "Exists"]),
        "value": VALUES,
        "effect": EFFECTS,
        "future": st.just(1),
    },
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "affinity": st.none() | st.lists(TERMS, min_size=1, max_size=2).map(lambda some: affinity(*some)),
        "tolerations": st.none() | st.lists(TOLERATIONS, max_size=3),
        "nodeSelector": st.none() | st.dictionaries(KEYS, VALUES, max_size=2),
        "future": st.just({"field": [1]}),
    },
)
PODS = st.builds(lambda spec: pod(**spec), SPECS)
POOLS = st.builds(
    lambda taints, spread: replace(TEAM_A, taints=tuple(taints), spread_over=spread),
    st.lists(TAINTS, max_size=3),
    st.sampled_from(["", ZONE]),
)
NODES = st.builds(
    lambda labels, taints: CandidateNode("n", labels, tuple(taints)),
    st.dictionaries(KEYS, VALUES, max_size=3),
    st.lists(TAINTS, max_size=2),
)


@given(PODS, POOLS)
def test_the_decision_is_idempotent(asked, pool):
    decision = decide(asked, pool)
    if isinstance(decision, Refusal):
        return

    after = jsonpatch.apply(asked, decision.operations)

    assert decide(after, pool) == PoolAdmitted("team-a")


@given(PODS, POOLS)
def test_nothing_in_the_pod_is_removed(asked, pool):
    kept = deepcopy(asked)
    decision = decide(asked, pool)

    assert asked == kept
    if isinstance(decision, PoolAdmitted):
        after = jsonpatch.apply(asked, decision.operations)
        rest = {"affinity", "tolerations", "topologySpreadConstraints"}
        assert {k: v for k, v in after["spec"].items() if k not in rest} == {
            k: v for k, v in asked["spec"].items() if k not in rest
        }
        said = asked["spec"].get("tolerations") or []
        assert (after["spec"].get("tolerations") or [])[: len(said)] == said


@given(PODS, POOLS, NODES)
def test_an_admitted_pod_matches_only_nodes_of_its_pool(asked, pool, node):
    decision = decide(asked, pool)
    if isinstance(decision, Refusal):
        return
    after = jsonpatch.apply(asked, decision.operations)
    of_the_pool = replace(node, labels={**node.labels, OURS["key"]: ""})
    tainted = replace(of_the_pool, taints=(*node.taints, *pool.taints))

    if OURS["key"] not in node.labels:
        assert rejection(node, needs(after))
    assert bool(rejection(tainted, needs(after))) == bool(rejection(of_the_pool, _tolerating(asked, pool)))


def needs(found: Raw) -> NodeConstraints:
    spec = found["spec"]
    required = (spec.get("affinity") or {}).get("nodeAffinity", {}).get(REQUIRED)
    return NodeConstraints(
        selector=spec.get("nodeSelector") or {},
        terms=None
        if required is None
        else tuple(
            tuple(
                LabelRequirement(one["key"], one["operator"], tuple(one.get("values", ())))
                for one in term.get("matchExpressions", ())
            )
            for term in required["nodeSelectorTerms"]
        ),
        tolerations=tuple(
            PodToleration(
                one.get("key", ""), one.get("operator", "Equal"), one.get("value", ""), one.get("effect", "")
            )
            for one in spec.get("tolerations") or ()
        ),
    )


def _tolerating(asked: Raw, pool: AdmissionPool) -> NodeConstraints:
    """The node constraints of the pod itself, with tolerations of the taints of the pool."""
    said = needs(asked)
    ours = tuple(PodToleration(one.key, "Equal", one.value, one.effect) for one in pool.taints)
    return replace(said, tolerations=said.tolerations + ours)
