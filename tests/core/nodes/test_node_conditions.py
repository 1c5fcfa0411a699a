"""Node conditions and the MIG state label."""

import pytest

from croupier.core.nodes import node_conditions as node_state
from croupier.core.nodes.layout_plan import LayoutStep
from croupier.core.nodes.node_conditions import DevicePluginState

INDEXES = {"a": 0, "b": 1, "c": 2}


def step(card: str = "a", state: str = "Applied", message: str = "", target: str = "1g.10gb:7") -> LayoutStep:
    return LayoutStep(card, state, target, message)  # type: ignore[arg-type]  # a table of words


WORDS = {
    "nothing requested": ([step()], False, "", ""),
    "all applied": ([step(), step("b")], True, "", "success"),
    "one card waits": ([step(), step("b", "Waiting")], True, "", "pending"),
    "one card drifted": ([step("b", "Drifted")], True, "", "pending"),
    "one card failed, one waits": ([step("a", "Failed"), step("b", "Waiting")], True, "", "failed"),
    "refused": ([step()], True, "no such profile", "failed"),
}


@pytest.mark.parametrize(("steps", "asked", "refused", "word"), WORDS.values(), ids=WORDS)
def test_the_mig_state_label(steps, asked, refused, word):
    assert node_state.mig_state(steps, asked=asked, refused=refused) == word


LAYOUTS = {
    "nothing requested": ([step(target="")], "", "NothingAsked", "no layout is requested"),
    "all applied": ([step(), step("b")], "", "Applied", "2 cards have their requested layout"),
    "the worst state is reported": (
        [step("a", "Waiting", "w"), step("b", "Failed", "broke")],
        "",
        "Failed",
        "card 1: broke",
    ),
    "equal reasons are grouped": (
        [step("a", "Waiting", "w"), step("b", "Waiting", "w"), step("c", "Waiting", "x")],
        "",
        "Waiting",
        "cards 0, 1: w; card 2: x",
    ),
    "refused": ([step()], "line 3: what", "Refused", "line 3: what"),
}


@pytest.mark.parametrize(("steps", "refused", "reason", "message"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_condition(steps, refused, reason, message):
    found = node_state.layout_condition(steps, INDEXES, refused)

    assert (found.type, found.reason) == ("MIGLayoutApplied", reason)
    assert found.status == ("True" if reason in ("Applied", "NothingAsked") else "False")
    assert message in found.message


SERVICES = {
    "served": (DevicePluginState({"nvidia.com/gpu": 4}), "True", "Served", "nvidia.com/gpu"),
    "nothing": (DevicePluginState({}), "True", "NothingToServe", "no resources to serve"),
    "served by another plugin": (
        DevicePluginState({"gpu.mps.io/percent": 400}, others=("nvidia.com/gpu",)),
        "True",
        "ServedByOthers",
        "another device plugin serves nvidia.com/gpu",
    ),
    "not registered yet": (
        DevicePluginState({}, waiting=("nvidia.com/gpu",)),
        "False",
        "NotRegistered",
        "not registered with the kubelet: nvidia.com/gpu",
    ),
    "trouble": (
        DevicePluginState({}, troubles=("no kubelet listens",)),
        "False",
        "Trouble",
        "no kubelet listens",
    ),
}


@pytest.mark.parametrize(("told", "status", "reason", "message"), SERVICES.values(), ids=SERVICES)
def test_the_plugin_condition(told, status, reason, message):
    found = node_state.plugin_condition(told)

    assert (found.type, found.status, found.reason) == ("GPUResourcesServed", status, reason)
    assert message in found.message


def test_messages_are_bounded():
    steps = [step(f"card-{n}", "Failed", "x" * 200) for n in range(32)]
    steps = [LayoutStep(one.card, one.state, one.target, f"{one.message}{n}") for n, one in enumerate(steps)]

    assert len(node_state.layout_condition(steps, {}, "").message) <= 1000
