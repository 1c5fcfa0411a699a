"""What is taken away first must not be needed for what goes later."""

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.installation import leaving
from croupier.core.installation.leaving import STAGES, Marks, Remnant

remnants = st.builds(
    Remnant, st.sampled_from(STAGES), st.text(max_size=3), st.text(max_size=3), st.just("what"), st.booleans()
)


@given(st.lists(remnants))
def test_everything_goes_in_its_turn_and_kinds_only_if_asked(found):
    going, all_going = leaving.plan(found), leaving.plan(found, with_kinds=True)

    turns = [STAGES.index(one.stage) for one in all_going]
    assert turns == sorted(turns)
    assert len(all_going) == len(found)
    assert all(one.stage != "definition" for one in going)
    assert len(going) + len(leaving.staying(found)) == len(found)


def test_registrations_go_before_processes_and_these_before_finalizers_and_marks():
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


def test_only_what_others_wait_for_blocks():
    assert leaving.reservation("ns/r", deleted=False).blocks
    assert leaving.webhook("M", "w", ["access"]).blocks
    assert not leaving.webhook("M", "w", []).blocks
    assert leaving.node("n", Marks(taints=("t",))).blocks
    assert not leaving.node("n", Marks(labels=("l",))).blocks
    assert leaving.node("n", Marks(labels=tuple("abcde"))).what == "labels a, b, c and 2 more"
    assert not Marks()
