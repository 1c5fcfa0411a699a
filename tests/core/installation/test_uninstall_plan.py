"""The order of removal: earlier objects must not be needed for the removal of later ones."""

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.installation import uninstall_plan
from croupier.core.installation.uninstall_plan import STAGES, NodeRemnants, Remnant

remnants = st.builds(
    Remnant, st.sampled_from(STAGES), st.text(max_size=3), st.text(max_size=3), st.just("what"), st.booleans()
)


@given(st.lists(remnants))
def test_objects_are_removed_in_order_and_crds_only_on_request(found):
    going, all_going = uninstall_plan.plan(found), uninstall_plan.plan(found, with_kinds=True)

    turns = [STAGES.index(one.stage) for one in all_going]
    assert turns == sorted(turns)
    assert len(all_going) == len(found)
    assert all(one.stage != "definition" for one in going)
    assert len(going) + len(uninstall_plan.remaining(found)) == len(found)


def test_webhooks_are_removed_before_processes_and_finalizers_before_nodes():
    found = [
        uninstall_plan.definition("x", 2),
        uninstall_plan.node("n", NodeRemnants(taints=("a=b:NoSchedule",))),
        uninstall_plan.pool("p", deleted=True),
        uninstall_plan.process("Deployment", "d"),
        uninstall_plan.policy("ValidatingAdmissionPolicy", "q"),
        uninstall_plan.policy("ValidatingAdmissionPolicyBinding", "q"),
        uninstall_plan.webhook("MutatingWebhookConfiguration", "w", ["access"]),
    ]
    stages = ["webhook", "binding", "policy", "process", "pool", "node"]
    assert [one.stage for one in uninstall_plan.plan(found)] == stages


def test_only_blocking_objects_block():
    assert uninstall_plan.reservation("ns/r", deleted=False).blocks
    assert uninstall_plan.webhook("M", "w", ["access"]).blocks
    assert not uninstall_plan.webhook("M", "w", []).blocks
    assert uninstall_plan.node("n", NodeRemnants(taints=("t",))).blocks
    assert not uninstall_plan.node("n", NodeRemnants(labels=("l",))).blocks
    assert uninstall_plan.node("n", NodeRemnants(labels=tuple("abcde"))).what == "labels a, b, c and 2 more"
    assert uninstall_plan.node("n", NodeRemnants(labels=("a",))).report == "removed label a from Node n"
    assert not NodeRemnants()
