"""Nodes have the labels and taints of their pools, and keep labels and taints of others."""

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.pods.scheduler_filters import NodeTaint
from croupier.core.pools import node_labels as pool_nodes
from croupier.core.pools.node_labels import NodeMarks

GPU = NodeTaint("gpu", "NoSchedule", "team-a")
OURS = frozenset({str(GPU)})
THEIRS = NodeTaint("node.kubernetes.io/unschedulable", "NoSchedule")


def test_a_node_gets_the_label_and_the_taints_of_its_pools() -> None:
    found = pool_nodes.decide(NodeMarks(taints=(THEIRS,)), {"team-a": [GPU]})

    assert found == NodeMarks(frozenset({"team-a"}), (THEIRS, GPU), OURS)


def test_label_and_taints_are_removed_with_the_last_card() -> None:
    now = NodeMarks(frozenset({"team-a"}), (GPU, THEIRS), OURS)

    assert pool_nodes.decide(now, {}) == NodeMarks(taints=(THEIRS,))


def test_a_taint_of_a_user_stays_when_the_pool_leaves() -> None:
    by_hand = NodeMarks(taints=(GPU,))

    with_pool = pool_nodes.decide(by_hand, {"team-a": [GPU]})

    assert with_pool == NodeMarks(frozenset({"team-a"}), (GPU,))
    assert pool_nodes.decide(with_pool, {}) == by_hand


def test_a_taint_of_two_pools_is_removed_with_the_second() -> None:
    both = pool_nodes.decide(NodeMarks(), {"team-a": [GPU], "team-b": [GPU]})

    assert both.taints == (GPU,)
    assert pool_nodes.decide(both, {"team-b": [GPU]}).taints == (GPU,)


def test_a_node_of_two_pools_gets_the_taints_of_both() -> None:
    other = NodeTaint("other", "NoSchedule", "team-b")

    assert pool_nodes.decide(NodeMarks(), {"team-a": [GPU], "team-b": [other]}).taints == (GPU, other)


def test_of_two_values_of_a_taint_the_first_wins() -> None:
    other = NodeTaint("gpu", "NoSchedule", "team-b")

    assert pool_nodes.decide(NodeMarks(), {"team-b": [other], "team-a": [GPU]}).taints == (GPU,)


def test_a_changed_taint_replaces_the_old_one() -> None:
    now = pool_nodes.decide(NodeMarks(taints=(THEIRS,)), {"team-a": [GPU]})
    other = NodeTaint("gpu", "NoExecute", "team-a")

    assert pool_nodes.decide(now, {"team-a": [other]}).taints == (THEIRS, other)


taints = st.lists(
    st.builds(NodeTaint, st.sampled_from("kl"), st.just("NoSchedule"), st.sampled_from("vw")), max_size=3
)
pools = st.dictionaries(st.sampled_from("ab"), taints)


@given(taints, pools, pools)
def test_foreign_taints_stay_and_the_decision_is_idempotent(
    theirs: list[NodeTaint], before: dict[str, list[NodeTaint]], after: dict[str, list[NodeTaint]]
) -> None:
    start = NodeMarks(taints=tuple({(one.key, one.effect): one for one in theirs}.values()))

    found = pool_nodes.decide(pool_nodes.decide(start, before), after)

    assert set(start.taints) <= set(found.taints)
    assert pool_nodes.decide(found, after) == found
    assert pool_nodes.decide(found, {}) == start
