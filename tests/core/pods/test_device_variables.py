"""Variables of a pod never override what its card request grants."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core import jsonpatch
from croupier.core.model.refusal import Refusal
from croupier.core.pods import device_variables, podspec_view
from croupier.core.pods.device_variables import CUDA_VISIBLE, LIMITS, VISIBLE, VariableChanges
from croupier.core.pods.request_parser import GPU, LEDGER, MIG, PERCENT, POOL

Raw = dict[str, Any]

ALL = {"name": VISIBLE, "value": "all"}
VOID = {"name": VISIBLE, "value": "void"}
OTHER = {"name": "OTHER", "value": "1"}
CUDA = {"name": CUDA_VISIBLE, "value": "0"}
REFERENCE = {"name": VISIBLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def container(name: str, env: list[Raw], resource: str = "") -> Raw:
    limits = {"limits": {resource: "1"}} if resource else {}
    return {"name": name, "env": env, "resources": limits}


def pod(main: list[Raw], side: list[Raw], *, resource: str = GPU, early: list[Raw] | None = None) -> Raw:
    """`main` requests the resource; `side` and the init container `early` request nothing."""
    return {
        "spec": {
            "containers": [container("main", main, resource), container("side", side)],
            "initContainers": [container("early", early or [])],
        }
    }


def overruled(raw: Raw) -> VariableChanges | Refusal:
    spec = podspec_view.read(raw)
    assert not isinstance(spec, Refusal)
    return device_variables.overrule(spec)


def envs(raw: Raw) -> list[list[Raw]]:
    return [one["env"] for kind in ("containers", "initContainers") for one in raw["spec"][kind]]


def result(raw: Raw) -> list[list[Raw]]:
    changes = overruled(raw)
    assert isinstance(changes, VariableChanges), changes
    return envs(jsonpatch.apply(raw, changes.operations))


OVERRULED = {
    "its own variable goes": (pod([ALL], []), [[], [], []], 1),
    "others stay": (pod([OTHER, ALL, CUDA], []), [[OTHER, CUDA], [], []], 1),
    "both of two go": (pod([ALL, OTHER, ALL], []), [[OTHER], [], []], 1),
    "a value from elsewhere goes": (pod([REFERENCE], []), [[], [], []], 1),
    "void goes without a word": (pod([VOID], []), [[], [], []], 0),
    "a neighbour sees nothing": (pod([], [ALL, OTHER]), [[], [VOID, OTHER], []], 1),
    "an init container sees nothing": (pod([], [], early=[REFERENCE]), [[], [], [VOID]], 1),
    "void of a neighbour stays": (pod([], [VOID]), [[], [VOID], []], 0),
    "MIG": (pod([ALL], [], resource=f"{MIG}1g.10gb"), [[], [], []], 1),
    "percent": (pod([ALL], [], resource=PERCENT), [[], [], []], 1),
    "a pool": (pod([ALL], [], resource=f"{POOL}a"), [[], [], []], 1),
    "without cards nothing changes": (pod([ALL], [ALL], resource="cpu"), [[ALL], [ALL], []], 0),
    "the mark alone is no card": (pod([ALL], [], resource=LEDGER), [[ALL], [], []], 0),
}


@pytest.mark.parametrize(("raw", "expected", "warnings"), OVERRULED.values(), ids=OVERRULED)
def test_visible_devices_are_overruled(raw, expected, warnings):
    changes = overruled(raw)

    assert result(raw) == expected
    assert isinstance(changes, VariableChanges)
    assert len(changes.warnings) == warnings


LIMIT_NAMES = (
    *LIMITS,
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_SM_PARTITION",
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_MEMORY_LIMIT_3",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "CUDA_DEVICE_SM_LIMIT",
)


@pytest.mark.parametrize("name", LIMIT_NAMES)
def test_limits_are_refused_and_named(name):
    refused = overruled(pod([], [{"name": name, "value": "100"}]))

    assert refused == Refusal(device_variables.OVERRIDES.format(item=f"container side sets {name}"))


def test_limits_without_cards_are_admitted():
    assert overruled(pod([{"name": name, "value": "1"} for name in LIMIT_NAMES], [], resource="cpu")) == (
        VariableChanges()
    )


ODD = {
    "an env that is no list": (
        [{"env": {"a": "b"}}],
        "spec.containers[0].env must be a list, but is a mapping",
    ),
    "a variable that is text": (
        [{"env": ["A=b"]}],
        "spec.containers[0].env[0] must be a mapping, but is text",
    ),
    "a number as a value": (
        [{"env": [{"name": "A", "value": 1}]}],
        "spec.containers[0].env[0].value must be text, but is a number; put it in quotes",
    ),
}


@pytest.mark.parametrize(("containers", "sentence"), ODD.values(), ids=ODD)
def test_malformed_variables_are_refused(containers, sentence):
    assert podspec_view.read({"spec": {"containers": containers}}) == Refusal(sentence)


NAMES = st.sampled_from([VISIBLE, CUDA_VISIBLE, "OTHER", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_OVERSUBSCRIBE"])
VALUES = st.sampled_from(["", "void", "none", "all", "0", "GPU-1"])
VARIABLES = st.lists(
    st.one_of(
        st.builds(lambda name, value: {"name": name, "value": value}, NAMES, VALUES),
        st.builds(lambda name: {"name": name, "valueFrom": {}}, NAMES),
    ),
    max_size=5,
)
RESOURCES = st.sampled_from(["", "cpu", GPU, PERCENT, f"{POOL}a", f"{MIG}1g.10gb"])
CONTAINERS = st.builds(lambda env, resource: container("any", env, resource), VARIABLES, RESOURCES)
PODS = st.builds(
    lambda regular, early: {"spec": {"containers": regular, "initContainers": early}},
    st.lists(CONTAINERS, min_size=1, max_size=4),
    st.lists(CONTAINERS, max_size=2),
)


def _cards(one: Raw) -> bool:
    return bool(one["resources"].get("limits", {}).keys() - {"cpu"})


@given(PODS)
def test_no_container_of_an_admitted_pod_sees_more_than_its_cards(raw):
    changes = overruled(raw)
    containers = [*raw["spec"]["containers"], *raw["spec"]["initContainers"]]
    if isinstance(changes, Refusal):
        assert any(map(_cards, containers))
        return
    after = jsonpatch.apply(raw, changes.operations)
    if not any(map(_cards, containers)):
        assert after == raw
        return
    for one in (*after["spec"]["containers"], *after["spec"]["initContainers"]):
        visible = [each for each in one["env"] if each["name"] == VISIBLE]
        assert not any(device_variables.is_limit(each["name"]) for each in one["env"])
        assert (
            not visible if _cards(one) else all(each.get("value") in ("", "void", "none") for each in visible)
        )


@given(PODS)
def test_only_visible_devices_change_and_only_once(raw):
    changes = overruled(raw)
    if isinstance(changes, Refusal):
        return
    after = jsonpatch.apply(raw, changes.operations)

    def others(changed: Raw) -> list[list[Raw]]:
        return [[each for each in env if each["name"] != VISIBLE] for env in envs(changed)]

    assert others(after) == others(raw)
    assert overruled(after) == VariableChanges()
