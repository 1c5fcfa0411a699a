"""The bootstrap decision names what is missing, and starts only the services that are needed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.nodes import bootstrap
from croupier.core.nodes.bootstrap import (
    DCGM,
    GFD,
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    HEARTBEATS_NEEDED,
    MISSING,
    NEVER,
    SERVICE_KINDS,
    BootstrapCard,
    BootstrapFacts,
    HeartbeatCount,
    ServicePod,
)

CARDS = (BootstrapCard("card-0", "Ready"), BootstrapCard("card-1", "Assigned"))
IMAGES = {GFD: "example/gfd:1", DCGM: "example/dcgm:1"}
NEW = BootstrapFacts(cards=CARDS)
"""A node without any information."""
FIT = BootstrapFacts(
    cards=CARDS,
    agent=True,
    driver="550.54",
    toolkit=True,
    labelled=True,
    monitored_by="nvml",
    beats=HEARTBEATS_NEEDED,
    since_heartbeat=5.0,
    observed_for=60.0,
)
BARE = replace(
    FIT, agent=False, labelled=False, monitored_by="", beats=0, since_heartbeat=NEVER, images=IMAGES
)
"""A node with driver and toolkit, without labels and monitoring."""


def theirs(kind: bootstrap.ServiceKind, **about) -> ServicePod:
    return ServicePod(kind, f"gpu-operator/{kind}-x", **about)


def ours(kind: bootstrap.ServiceKind, **about) -> ServicePod:
    return ServicePod(kind, f"d8-gpu-operator/{kind}-node-1", ours=True, **about)


def answers(facts: BootstrapFacts) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in bootstrap.decide(facts).conditions}


PHASES = {
    "not managed": (replace(FIT, managed=False), "Disabled"),
    "no information yet": (NEW, "Validating"),
    "no information for two minutes": (replace(NEW, observed_for=HEARTBEAT_TIMEOUT), "ValidatingFailed"),
    "its agent found no driver": (replace(FIT, driver=""), "ValidatingFailed"),
    "its agent found no toolkit": (replace(FIT, toolkit=False), "ValidatingFailed"),
    "a driver by labels, and no information about the toolkit yet": (
        replace(BARE, toolkit=False, observed_for=10.0),
        "Validating",
    ),
    "not labelled": (BARE, "GFD"),
    "labelled, without heartbeats": (replace(BARE, labelled=True), "Monitoring"),
    "two heartbeats": (replace(FIT, beats=2), "Monitoring"),
    "three heartbeats": (FIT, "Ready"),
    "the last heartbeat two minutes ago": (replace(FIT, since_heartbeat=HEARTBEAT_TIMEOUT), "Ready"),
    "the last heartbeat longer ago": (replace(FIT, since_heartbeat=HEARTBEAT_TIMEOUT + 1), "Monitoring"),
}


@pytest.mark.parametrize(("facts", "phase"), PHASES.values(), ids=PHASES)
def test_the_phase_of_a_node(facts, phase):
    verdict = bootstrap.decide(facts)

    assert verdict.phase == phase
    assert verdict.again == (60.0 if phase in ("Ready", "Disabled") else 15.0)


POOLING = {
    "no cards": (replace(FIT, cards=(), incomplete="no labels"), "NoDevices"),
    "an incomplete inventory": (
        replace(FIT, incomplete="no labels", cards=(BootstrapCard("a", "Faulted"),)),
        "InventoryIncomplete",
    ),
    "a faulted card": (
        replace(FIT, cards=(BootstrapCard("a", "Faulted"), BootstrapCard("b", "Validating"))),
        "DevicesFaulted",
    ),
    "a card that is being validated": (
        replace(FIT, cards=(BootstrapCard("b", "Validating"),), driver=""),
        "PendingDevices",
    ),
    "no driver": (replace(FIT, driver="", toolkit=False), "DriverNotReady"),
    "no toolkit": (replace(FIT, toolkit=False, beats=0), "ToolkitNotReady"),
    "no heartbeats": (replace(FIT, beats=0), "MonitoringNotReady"),
    "no obstacle": (FIT, "Ready"),
}


@pytest.mark.parametrize(("facts", "reason"), POOLING.values(), ids=POOLING)
def test_the_first_obstacle_to_pooling_is_named(facts, reason):
    """Each case also has all later obstacles."""
    assert answers(facts)["ReadyForPooling"] == ("True" if reason == "Ready" else "False", reason)


def test_cards_in_use_are_named_when_their_node_degrades():
    busy = replace(
        FIT,
        driver="",
        cards=(BootstrapCard("card-0", "InUse", held=True), BootstrapCard("card-1", "Faulted")),
    )
    judged = {one.type: one for one in bootstrap.decide(busy).conditions}

    assert (judged["InfraDegraded"].status, judged["InfraDegraded"].reason) == ("True", "DriverMissing")
    assert judged["DegradedWorkloads"].status == "True"
    assert "card-0" in judged["DegradedWorkloads"].message
    assert "card-1" not in judged["DegradedWorkloads"].message
    assert answers(FIT)["DegradedWorkloads"] == ("False", "InfraHealthy")
    assert answers(replace(FIT, driver=""))["DegradedWorkloads"] == ("False", "NoWorkloads")


STARTED = {
    "both, if there is neither": (BARE, {GFD, DCGM}),
    "nothing with an agent": (replace(FIT, images=IMAGES, labelled=False), set()),
    "nothing without an image": (replace(BARE, images={}), set()),
    "only a service with an image": (replace(BARE, images={DCGM: "x"}), {DCGM}),
    "nothing on a node without cards": (replace(BARE, cards=()), set()),
    "nothing without a driver": (replace(BARE, driver=""), set()),
    "nothing without a toolkit": (replace(BARE, toolkit=False), set()),
    "nothing on a node that is not managed": (replace(BARE, managed=False), set()),
    "no labelling if there are labels": (replace(BARE, labelled=True), {DCGM}),
    "our labelling pod stays": (replace(BARE, labelled=True, services=(ours(GFD),)), {GFD, DCGM}),
    "nothing if another operator runs it": (replace(BARE, services=(theirs(GFD), theirs(DCGM))), set()),
    "ours is replaced by that of another operator": (
        replace(BARE, services=(ours(DCGM), theirs(DCGM))),
        {GFD},
    ),
}


@pytest.mark.parametrize(("facts", "kinds"), STARTED.values(), ids=STARTED)
def test_what_is_started(facts, kinds):
    assert bootstrap.decide(facts).start == kinds


ADVICE = {
    "a service without an image": (replace(BARE, images={}), "GFDReady", "it has no image"),
    "a service that is being started": (BARE, "GFDReady", "is being started"),
    "a service that does not become ready": (
        replace(BARE, services=(ours(DCGM, message="ImagePullBackOff"),), observed_for=HEARTBEAT_TIMEOUT),
        "MonitoringMissing",
        "dcgm-exporter-node-1 is not ready (ImagePullBackOff)",
    ),
    "a silent agent": (
        replace(FIT, since_heartbeat=HEARTBEAT_TIMEOUT + 1),
        "MonitoringMissing",
        "check the agent of the node",
    ),
    "an agent that has not labelled yet": (
        replace(FIT, labelled=False),
        "GFDReady",
        "has not labelled it yet",
    ),
    "a node without any information": (
        replace(NEW, observed_for=HEARTBEAT_TIMEOUT),
        "DriverMissing",
        "run the agent",
    ),
}


@pytest.mark.parametrize(("facts", "kind", "says"), ADVICE.values(), ids=ADVICE)
def test_messages_say_what_to_do(facts, kind, says):
    told = {one.type: one.message for one in bootstrap.decide(facts).conditions}

    assert says in told[kind]


@given(
    st.builds(
        BootstrapFacts,
        managed=st.booleans(),
        cards=st.lists(st.sampled_from(CARDS), max_size=2).map(tuple),
        agent=st.booleans(),
        driver=st.sampled_from(["", "550"]),
        toolkit=st.booleans(),
        labelled=st.booleans(),
        services=st.lists(st.sampled_from([ours(DCGM), theirs(DCGM), ours(GFD), theirs(GFD)])).map(tuple),
        images=st.sampled_from([{}, IMAGES]),
        beats=st.integers(0, HEARTBEATS_NEEDED),
        since_heartbeat=st.sampled_from([0.0, HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT + 1, NEVER]),
        observed_for=st.sampled_from([0.0, HEARTBEAT_TIMEOUT, NEVER]),
    )
)
def test_a_decision_is_consistent(facts):
    verdict = bootstrap.decide(facts)
    told = {one.type: one for one in verdict.conditions}

    assert verdict.start <= {kind for kind in SERVICE_KINDS if facts.images.get(kind)}
    assert len(told) == len(verdict.conditions)
    assert all(one.message and one.reason for one in told.values())
    if verdict.ready:
        assert {told[name].status for name in MISSING} == {"False"}
    if told:
        failing = any(told[name].status == "True" for name in MISSING)
        assert (told["InfraDegraded"].status == "True") == failing


def test_reconciles_count_as_heartbeats_without_an_agent():
    pulse = bootstrap.count_heartbeat(None, good=True, now=0.0)
    assert pulse == HeartbeatCount(1, 0.0)
    assert bootstrap.count_heartbeat(pulse, good=True, now=1.0) == pulse  # the same beat, seen again

    for count in (2, 3, 3):
        assert pulse is not None
        pulse = bootstrap.count_heartbeat(pulse, good=True, now=pulse.at + HEARTBEAT_INTERVAL)
        assert pulse is not None
        assert pulse.beats == count

    last = pulse.at
    assert bootstrap.count_heartbeat(pulse, good=False, now=last + HEARTBEAT_INTERVAL) == HeartbeatCount(
        0, last
    )
    assert bootstrap.count_heartbeat(None, good=False, now=0.0) is None
    assert bootstrap.count_heartbeat(HeartbeatCount(0, last), good=True, now=last + 1) == HeartbeatCount(
        1, last + 1
    )


def test_a_silent_node_has_no_heartbeats():
    assert bootstrap.decide(replace(FIT, since_heartbeat=HEARTBEAT_TIMEOUT + 1)).beats == 0
