"""Reading raw pods: missing fields are empty, wrong types are refused, unknown fields survive."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core import jsonpatch, quantity
from croupier.core.model.refusal import Refusal
from croupier.core.pods import podspec_view
from croupier.core.pods.podspec_view import PodSpecView

SLICE = "nvidia.com/mig-1g.10gb"
ONE, TWO = quantity.parse("1"), quantity.parse("2")


def pod(container: Any, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "pod", **meta}, "spec": {"containers": [container]}}


def read(given: Any) -> PodSpecView:
    spec = podspec_view.read(given)
    assert isinstance(spec, PodSpecView), spec
    return spec


EMPTY = {
    "nothing at all": {},
    "null": None,
    "nulls inside": {"metadata": None, "spec": None},
    "no containers": {
        "metadata": {"annotations": None},
        "spec": {"containers": None, "initContainers": None},
    },
}


@pytest.mark.parametrize("given", EMPTY.values(), ids=EMPTY)
def test_missing_fields_are_empty(given):
    spec = read(given)

    assert (spec.containers, spec.annotations, spec.name) == ((), {}, "")


ASKED = {
    "quantities in quotes": ({"limits": {SLICE: "2"}}, {SLICE: TWO}),
    "a number": ({"limits": {SLICE: 2}}, {SLICE: TWO}),
    "a whole number with a decimal point": ({"limits": {SLICE: 2.0}}, {SLICE: TWO}),
    "null": ({"limits": {SLICE: None}}, {SLICE: quantity.ZERO}),
    "a limit alone": ({"requests": None, "limits": {SLICE: 1}}, {SLICE: ONE}),
    "a request alone": ({"requests": {SLICE: 1}}, {SLICE: ONE}),
    "other resources": ({"requests": {"cpu": "a lot", "example.com/foo": []}}, {}),
    "no resources": (None, {}),
}


@pytest.mark.parametrize(("resources", "asks"), ASKED.values(), ids=ASKED)
def test_the_requests_of_a_container(resources, asks):
    [container] = read(pod({"name": "main", "resources": resources})).containers

    assert container.asks == asks


def test_containers_come_before_init_containers_and_have_paths():
    spec = read(
        {
            "spec": {
                "initContainers": [{"name": "warm-up"}, {"name": "cache", "restartPolicy": "Always"}],
                "containers": [{"name": "main", "restartPolicy": "Always"}, {}],
                "ephemeralContainers": [{"name": "debugger"}],
            }
        }
    )

    assert [(view.path, view.name, view.init, view.sidecar) for view in spec.containers] == [
        ("/spec/containers/0", "main", False, False),
        ("/spec/containers/1", "", False, False),
        ("/spec/initContainers/0", "warm-up", True, False),
        ("/spec/initContainers/1", "cache", True, True),
    ]


def test_the_effective_requests_of_the_pod():
    def asking(name: str, count: int, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {SLICE: count}}, **more}

    spec = read(
        {
            "spec": {
                "initContainers": [asking("sidecar", 1, restartPolicy="Always"), asking("once", 5)],
                "containers": [asking("one", 2), asking("two", 1)],
            }
        }
    )

    assert podspec_view.total(spec) == {SLICE: quantity.parse("6")}
    assert podspec_view.total(spec, [{SLICE: ONE}, {}, {}, {}]) == {SLICE: ONE}


NONSENSE = {
    "a list": ([], "the pod must be a mapping, but is a list"),
    "a number for metadata": ({"metadata": 7}, "metadata must be a mapping, but is a number"),
    "text for spec": ({"spec": "pod"}, "spec must be a mapping, but is text"),
    "containers by name": (
        {"spec": {"containers": {"main": {}}}},
        "spec.containers must be a list, but is a mapping",
    ),
    "a container that is text": (pod("main"), "spec.containers[0] must be a mapping, but is text"),
    "a container that is a number": (
        {"spec": {"containers": [{}, 3]}},
        "spec.containers[1] must be a mapping",
    ),
    "a name that is a number": (
        pod({"name": 1}),
        "spec.containers[0].name must be text, but is a number; put it in quotes",
    ),
    "resources that are a list": (
        pod({"resources": []}),
        "spec.containers[0].resources must be a mapping, but is a list",
    ),
    "limits that are text": (
        pod({"resources": {"limits": "1"}}),
        "spec.containers[0].resources.limits must be a mapping, but is text",
    ),
    "a quantity that is a list": (
        pod({"resources": {"limits": {SLICE: []}}}),
        f"spec.containers[0].resources.limits[{SLICE}] must be a quantity, but is a list",
    ),
    "a quantity that is true": (
        pod({"resources": {"limits": {SLICE: True}}}),
        f"spec.containers[0].resources.limits[{SLICE}] must be a quantity, but is true or false",
    ),
    "text that is not a quantity": (
        pod({"resources": {"requests": {SLICE: "one"}}}),
        f"spec.containers[0].resources.requests[{SLICE}]: 'one' is not a quantity",
    ),
    "an annotation without quotes": (
        pod({}, annotations={"gpu.mps.io/cards": 2}),
        "metadata.annotations[gpu.mps.io/cards] must be text, but is a number; put it in quotes",
    ),
    "a key without quotes": (
        pod({}, annotations={1: "2"}),
        "metadata.annotations: keys must be strings, but 1 is not; put it in quotes",
    ),
}


@pytest.mark.parametrize(("given", "sentence"), NONSENSE.values(), ids=NONSENSE)
def test_wrong_types_are_refused(given, sentence):
    refused = podspec_view.read(given)

    assert isinstance(refused, Refusal)
    assert sentence in str(refused)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ("name", "annotations", "containers", "initContainers", "resources", "limits", "requests", SLICE)
)
SHAPED = st.recursive(
    JSON, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(FIELDS, inside), max_leaves=12
)


@given(st.fixed_dictionaries({"metadata": SHAPED, "spec": SHAPED}) | JSON)
def test_reading_never_raises(given):
    assert isinstance(podspec_view.read(given), PodSpecView | Refusal)


PLACES = {
    "where there are no resources": {"name": "main"},
    "where resources are null": {"name": "main", "resources": None},
    "where they are empty": {"name": "main", "resources": {}},
    "where maps are null": {"name": "main", "resources": {"requests": None, "limits": None}},
    "other resources": {
        "name": "main",
        "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}, "claims": []},
    },
    "existing card resources": {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 3, SLICE: 9}}},
}


@pytest.mark.parametrize("container", PLACES.values(), ids=PLACES)
def test_card_resources_are_set_and_others_stay(container):
    given = pod(container)
    [view] = read(given).containers
    operations = podspec_view.set_resources(view, requests={SLICE: ONE}, limits={SLICE: ONE})

    after = jsonpatch.apply(given, operations)

    [set_to] = read(after).containers
    assert (set_to.requests, set_to.limits) == ({SLICE: ONE}, {SLICE: ONE})
    assert podspec_view.set_resources(set_to, requests={SLICE: ONE}, limits={SLICE: ONE}) == ()
    before = container.get("resources") or {}
    resources = after["spec"]["containers"][0]["resources"]
    for key in ("requests", "limits"):
        others = {
            name: amount for name, amount in (before.get(key) or {}).items() if not name.startswith("nvidia")
        }
        assert resources[key] == {**others, SLICE: "1"}
    assert resources.get("claims") == before.get("claims")


def test_a_resource_is_moved_by_remove_and_add():
    [view] = read(pod({"name": "main", "resources": {"limits": {"nvidia.com/mig-2g.20gb": "1"}}})).containers

    operations = podspec_view.set_resources(view, requests={}, limits={SLICE: ONE})

    assert jsonpatch.data(operations) == [
        {"op": "remove", "path": "/spec/containers/0/resources/limits/nvidia.com~1mig-2g.20gb"},
        {"op": "add", "path": "/spec/containers/0/resources/limits/nvidia.com~1mig-1g.10gb", "value": "1"},
    ]


NOTED = {
    "no metadata": {},
    "metadata is null": {"metadata": None},
    "no annotations": {"metadata": {"name": "x"}},
    "annotations are null": {"metadata": {"name": "x", "annotations": None}},
    "other annotations": {"metadata": {"annotations": {"b/c": "d"}}},
    "an older value": {"metadata": {"annotations": {"a/b~c": "older", "b/c": "d"}}},
}


@pytest.mark.parametrize("given", NOTED.values(), ids=NOTED)
def test_an_annotation_is_set(given):
    before = read(given)
    after = jsonpatch.apply(given, podspec_view.set_annotation(before, "a/b~c", "new"))

    assert read(after).annotations == {**before.annotations, "a/b~c": "new"}
    assert podspec_view.set_annotation(read(after), "a/b~c", "new") == ()
