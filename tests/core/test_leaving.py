"""The order of removal: earlier objects must not be needed for the removal of later ones."""

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.installation import leaving
from croupier.core.installation.leaving import STAGES, Marks, Remnant

remnants = st.builds(
    Remnant, st.sampled_from(STAGES), st.text(max_size=3), st.text(max_size=3), st.just("what"), st.booleans()
)


@given(st.lists(remnants))
def test_objects_are_removed_in_order_and_crds_only_on_request(found):
    going, all_going = leaving.plan(found), leaving.plan(found, with_kinds=True)

    turns = [STAGES.index(one.stage) for one in all_going]
    assert turns == sorted(turns)
    assert len(all_going) == len(found)
    assert all(one.stage != "definition" for one in going)
    assert len(going) + len(leaving.staying(found)) == len(found)


def test_webhooks_are_removed_before_processes_and_finalizers_before_nodes():
    found = [
        leaving.definition("x", 2),
        leaving.node("n", Marks(taints=("a=b:NoSchedule",))),
        leaving.pool("p", deleted=True),
        leaving.process("Deployment", "d"),
        leaving.policy("ValidatingAdmissionPolicy", "q"),
        leaving.policy("ValidatingAdmissionPolicyBinding", "q"),
        leaving.webhook("MutatingWebhookConfiguration", "w", ["access"]),
    ]
    stages = ["webhook", "binding", "policy", "process", "pool", "node"]
    assert [one.stage for one in leaving.plan(found)] == stages


def test_only_blocking_objects_block():
    assert leaving.reservation("ns/r", deleted=False).blocks
    assert leaving.webhook("M", "w", ["access"]).blocks
    assert not leaving.webhook("M", "w", []).blocks
    assert leaving.node("n", Marks(taints=("t",))).blocks
    assert not leaving.node("n", Marks(labels=("l",))).blocks
    assert leaving.node("n", Marks(labels=tuple("abcde"))).what == "labels a, b, c and 2 more"
    assert not Marks()
