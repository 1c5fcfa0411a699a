"""The next step of an MPS daemon: it never ends under a pod, and it always gets to its goal."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.model.sharing import Sharing
from croupier.core.nodes import mps_daemon
from croupier.core.nodes.kubelet_assignments import KubeletAssignment
from croupier.core.nodes.mps_daemon import (
    STEP_TIMEOUT,
    Act,
    CardClients,
    ComputeMode,
    DaemonRecord,
    DaemonRequest,
    DaemonView,
    Off,
    Ready,
    Withhold,
)
from croupier.core.nodes.plugin_devices import PoolMembership
from tests.core.kubelet_env import PERCENT, partitioned, pod, pooled, share, whole

FREE, USED = CardClients(), CardClients({"team/a": 50})
RUNNING = DaemonRecord(1, 42, alive=True)
DEAD = DaemonRecord(1, 42, message="it exited with code 1")
ORPHANS = DaemonRecord(1, 42, servers=1)
RUN, STOP = DaemonRequest(1, run=True), DaemonRequest(1)
EXCLUSIVE: ComputeMode = "ExclusiveProcess"


def view(**known: object) -> DaemonView:
    return replace(DaemonView(wanted=True, use=FREE, mode="Default"), **known)  # type: ignore[arg-type]  # by name


NEXT = {
    "nothing for a card that needs none": (view(wanted=False), Off()),
    "a record before anything else": (view(), Act("Prepare")),
    "then the compute mode": (view(request=DaemonRequest()), Act("SetExclusive")),
    "then the daemon": (view(request=DaemonRequest(), mode=EXCLUSIVE), Act("Start")),
    "it answers": (view(request=RUN, record=RUNNING, answered_by=42, mode=EXCLUSIVE), Ready()),
    "a changed compute mode is set again": (
        view(request=RUN, record=RUNNING, answered_by=42),
        Act("SetExclusive"),
    ),
    "an unknown compute mode does not stop a daemon": (
        view(request=RUN, record=RUNNING, answered_by=42, mode=""),
        Ready(),
    ),
    "a hung daemon without pods": (view(request=RUN, record=RUNNING, mode=EXCLUSIVE), Act("Kill")),
    "servers of a dead daemon without pods": (view(request=RUN, record=ORPHANS), Act("Kill")),
    "a dead daemon without servers, even with pods": (
        view(request=RUN, record=DEAD, use=USED, mode=EXCLUSIVE),
        Act("Start"),
    ),
    "the end of the mode": (view(wanted=False, request=RUN, record=RUNNING, answered_by=42), Act("Quit")),
    "the end of a hung daemon": (view(wanted=False, request=RUN, record=RUNNING), Act("Kill")),
    "the compute mode after the daemon": (
        view(wanted=False, request=RUN, record=DEAD, mode=EXCLUSIVE),
        Act("SetDefault"),
    ),
    "the record last": (view(wanted=False, request=RUN, record=DEAD), Act("Forget")),
}

WITHHELD = {
    "a foreign compute mode": (view(mode="Prohibited"), "is in compute mode Prohibited", True),
    "an unknown compute mode": (view(mode=""), "does not tell its compute mode", True),
    "an unknown mode at the end": (
        view(wanted=False, request=RUN, record=DEAD, mode=""),
        "does not tell its compute mode",
        True,
    ),
    "a pod with the whole card": (
        view(use=CardClients(others=frozenset({"team/w"}))),
        "started after team/w has ended",
        False,
    ),
    "unknown assignments": (view(use=None), "assignments of the kubelet are not known", False),
    "no supervisor": (view(supervised=False), "no process `croupier mps`", True),
    "a start that takes its time": (view(request=RUN, since_step=1.0), "is starting", False),
    "a start that never happens": (view(request=RUN), "was not started", True),
    "a pause after a failure": (view(request=RUN, record=DEAD, retry_in=3.0), "it exited with code 1", True),
    "a stranger on the pipe": (
        view(request=RUN, record=RUNNING, answered_by=7),
        "another MPS daemon (process 7)",
        True,
    ),
    "a hung daemon with pods": (
        view(request=RUN, record=RUNNING, use=USED),
        "does not answer; it is started again after team/a has ended",
        True,
    ),
    "a dead daemon with clients": (
        view(request=RUN, record=ORPHANS, use=USED),
        "it is started again after",
        True,
    ),
    "the end with pods": (
        view(wanted=False, request=RUN, record=RUNNING, answered_by=42, use=USED),
        "its MPS daemon ends after team/a has ended",
        False,
    ),
    "a quit that takes its time": (
        view(wanted=False, request=RUN, record=RUNNING, since_step=2.0),
        "is being ended",
        False,
    ),
    "a kill that takes its time": (view(request=STOP, record=RUNNING), "is being ended", False),
}


@pytest.mark.parametrize(("state", "step"), NEXT.values(), ids=NEXT)
def test_the_next_step(state, step):
    assert mps_daemon.decide(state) == step


@pytest.mark.parametrize(("state", "says", "failed"), WITHHELD.values(), ids=WITHHELD)
def test_why_a_card_is_withheld(state, says, failed):
    decision = mps_daemon.decide(state)

    assert isinstance(decision, Withhold)
    assert says in decision.reason
    assert decision.failed is failed


VIEWS = st.builds(
    DaemonView,
    wanted=st.booleans(),
    use=st.sampled_from([None, FREE, USED]),
    mode=st.sampled_from(["", "Default", "Prohibited", EXCLUSIVE]),
    request=st.sampled_from([None, STOP, RUN, DaemonRequest(2, run=True)]),
    record=st.sampled_from([None, RUNNING, DEAD, ORPHANS]),
    answered_by=st.sampled_from([None, 42, 7]),
    supervised=st.booleans(),
    since_step=st.sampled_from([0.0, STEP_TIMEOUT]),
    retry_in=st.sampled_from([0.0, 5.0]),
)


@given(VIEWS)
def test_a_daemon_is_never_ended_while_a_pod_may_use_it(state):
    if mps_daemon.decide(state) in (Act("Quit"), Act("Kill")):
        assert state.use is not None
        assert not state.use.shares


@given(VIEWS)
def test_a_card_is_ready_only_while_its_own_daemon_answers(state):
    if mps_daemon.decide(state) == Ready():
        assert state.record is not None
        assert state.record.alive
        assert state.answered_by == state.record.pid


@given(VIEWS)
def test_the_compute_mode_is_given_back_only_without_a_daemon(state):
    if mps_daemon.decide(state) in (Act("SetDefault"), Act("Forget")):
        assert not state.wanted
        assert state.record is None or not (state.record.alive or state.record.servers)


def _after(state: DaemonView, decision: object) -> DaemonView:
    """The card after a step of an obedient supervisor and driver."""
    match decision:
        case Act("Prepare"):
            return replace(state, request=DaemonRequest())
        case Act("SetExclusive" | "SetDefault" as action):
            return replace(state, mode=EXCLUSIVE if action == "SetExclusive" else "Default")
        case Act("Start"):
            number = (state.request or DaemonRequest()).generation + 1
            record = DaemonRecord(number, 42, alive=True)
            return replace(state, request=DaemonRequest(number, run=True), record=record, answered_by=42)
        case Act("Quit") | Act("Kill"):
            ended = replace(state.record or DEAD, alive=False, servers=0)
            return replace(state, request=STOP, record=ended, answered_by=None)
        case Act("Forget"):
            return replace(state, request=None, record=None)
    return replace(state, since_step=STEP_TIMEOUT, retry_in=0.0)


@given(VIEWS.filter(lambda state: state.mode in ("Default", EXCLUSIVE) and state.supervised))
def test_every_free_card_gets_to_its_goal(state):
    state = replace(state, use=FREE)
    if state.request is None:  # such a card has no daemon and its own compute mode
        state = replace(state, mode="Default", record=None)
    if state.answered_by == 7 or state.request == DaemonRequest(2, run=True):
        return  # a stranger, or a supervisor that does not obey: withheld, as the cases above say
    if state.request == STOP and state.record in (RUNNING, ORPHANS):
        state = replace(state, record=DEAD, answered_by=None)  # the supervisor does what it was told
    if state.request == RUN and state.record is None:
        state = replace(state, record=RUNNING, answered_by=42)

    for _ in range(12):
        decision = mps_daemon.decide(state)
        if decision in (Ready(), Off()):
            break
        state = _after(state, decision)

    assert decision == (Ready() if state.wanted else Off())


def test_shares_count_by_assignment_and_by_grant():
    card, other = whole(), whole(1)
    cards = {card.id: card, other.id: other}
    shown = [
        KubeletAssignment("team/a", "main", "gpu.mps.io/percent", (f"{card.id}::p00", f"{card.id}::p01"))
    ]
    whole_card = [KubeletAssignment("team/w", "main", "nvidia.com/gpu", (other.id,))]

    bound = pod("b", {PERCENT: 30}, share(0, 30))

    use = mps_daemon.uses(cards, [*shown, *whole_card], [bound])

    assert use[card.id] == CardClients({"team/a": 2, "team/b": 30})
    assert use[other.id] == CardClients(others=frozenset({"team/w"}))


WANTED = {
    "a pool with enforcement MPS": (pooled(sharing="MPS"), FREE, True),
    "a pool of whole cards": (pooled(sharing="Exclusive"), FREE, False),
    "a card without a pool and without shares": (whole(), FREE, False),
    "a card without a pool and with a share": (whole(), USED, True),
    "a partitioned card": (partitioned(), USED, False),
    "a card that is being repartitioned": (whole(changing=True), USED, False),
}


@pytest.mark.parametrize(("card", "use", "expected"), WANTED.values(), ids=WANTED)
def test_which_cards_need_a_daemon(card, use, expected):
    if card.pool is not None and card.pool.sharing.mode == "MPS":
        card = replace(card, pool=PoolMembership("blue", Sharing("MPS", enforcement="MPS")))

    assert mps_daemon.is_wanted(card, use) is expected


@pytest.mark.parametrize("enforcement", ["HAMiCore", "None"])
def test_other_enforcement_needs_no_daemon(enforcement):
    card = replace(
        pooled(sharing="MPS"), pool=PoolMembership("blue", Sharing("MPS", enforcement=enforcement))
    )

    assert not mps_daemon.is_wanted(card, USED)


@given(
    st.lists(st.integers(1, 100), min_size=1).filter(lambda shares: sum(shares) <= 100), st.integers(1, 64)
)
def test_static_partitions_of_shares_above_one_chunk_always_fit(shares, total):
    if all(share * total >= 100 for share in shares):
        assert sum(mps_daemon.chunks(share, total) for share in shares) <= total


STATIC = {
    "13.1": (True, True),
    "13.0": (False, False),
    "12.8": (False, False),
    "": (False, False),
    "14.0": (True, True),
}


@pytest.mark.parametrize(("cuda", "expected"), STATIC.items(), ids=STATIC)
def test_which_drivers_have_static_partitions(cuda, expected):
    found = mps_daemon.has_static_partitions(cuda, 9), mps_daemon.has_static_partitions(cuda, 8)

    assert found == expected
    assert not mps_daemon.has_static_partitions(cuda, 7)
