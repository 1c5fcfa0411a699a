"""The workload of a manifest is read as the API server reads it, and anything else is refused."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.api import pod_manifest
from croupier.api.core_v1 import Pod
from croupier.core.model.card_request import CardShares
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal

SPEC = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}
KINDS = "Pod, Deployment, Job, ReplicaSet, StatefulSet or CronJob"


def manifest(kind: str, *, labels: dict[str, str] | None = None, **meta: str) -> dict[str, Any]:
    """A workload whose pod template has its own name and labels."""
    template = {"metadata": {"name": "of-template", "labels": labels or {}}, "spec": SPEC}
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    return {"kind": kind, "metadata": {"name": "job", **meta}, "spec": SPEC if kind == "Pod" else spec}


def read(*documents: Any, namespace: str | None = None) -> Pod:
    found = pod_manifest.pod("\n---\n".join(map(json.dumps, documents)), namespace)
    assert isinstance(found, Pod), found
    return found


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "Job", "ReplicaSet", "StatefulSet", "CronJob"])
def test_a_workload_is_read(kind):
    found = read(manifest(kind, namespace="team"))

    assert (found.metadata.name, found.metadata.namespace, found.metadata.uid) == ("job", "team", "what-if")
    view = pod_manifest.schedulable(found)
    assert isinstance(view, PodView)
    assert (view.key, view.wants) == ("team/job", (CardShares(2),))


def test_a_pod_template_keeps_its_labels():
    assert read(manifest("Job", labels={"tier": "gold"})).metadata.labels == {"tier": "gold"}


NAMESPACES = {
    "of the manifest": ({"namespace": "team"}, None, "team"),
    "of the caller": ({"namespace": "team"}, "mine", "mine"),
    "by default": ({}, None, "default"),
    "an empty one": ({"namespace": ""}, None, "default"),
}


@pytest.mark.parametrize(("meta", "asked", "namespace"), NAMESPACES.values(), ids=NAMESPACES)
def test_the_namespace(meta, asked, namespace):
    assert read(manifest("Pod", **meta), namespace=asked).metadata.namespace == namespace


def test_a_pod_without_a_name_gets_one():
    assert read({"kind": "Pod", "spec": SPEC}).metadata.name == "pod"


AROUND = {
    "other kinds": ({"kind": "Service", "spec": {}}, manifest("Job")),
    "empty documents": (None, manifest("Job"), None),
    "a list": ({"kind": "List", "items": [{"kind": "ConfigMap"}, "text", manifest("Job")]},),
    "a list of a kind": ({"kind": "JobList", "items": [manifest("Job")]},),
}


@pytest.mark.parametrize("documents", AROUND.values(), ids=AROUND)
def test_what_is_around_the_workload_is_ignored(documents):
    assert read(*documents).metadata.name == "job"


REFUSED = {
    "nothing": ("", f"must contain one {KINDS}, but contains none"),
    "a text": ("hello", f"must contain one {KINDS}, but contains none"),
    "another kind": ("kind: Service", f"must contain one {KINDS}, but contains none"),
    "a list of nothing": ("kind: List\nitems: {}", f"must contain one {KINDS}, but contains none"),
    "two workloads": (
        "kind: Pod\n---\nkind: Job",
        f"must contain one {KINDS}, but contains 2",
    ),
    "a Pod without spec": ("kind: Pod", "Pod has no pod spec"),
    "a Job without template": ("kind: Job\nspec: {}", "Job has no pod spec"),
    "a Job whose spec is a text": ("kind: Job\nspec: x", "Job has no pod spec"),
    "a CronJob with the template of a Job": (
        "kind: CronJob\nspec: {template: {spec: {}}}",
        "CronJob has no pod spec",
    ),
    "broken YAML": ("kind: Pod\nspec: {", "neither YAML nor JSON at line 2"),
    "a control character": ("kind: \x01", "neither YAML nor JSON"),
    "a tag of Python": ("kind: !!python/object:os.system x", "neither YAML nor JSON at line 1"),
    "a tag without its value": (
        "kind: !!int ''",
        "has a value that cannot be read: string index out of range",
    ),
    "deep nesting": ("[" * 5000 + "]" * 5000, "nested too deeply"),
    "a cycle": ("kind: Pod\nspec: &a {x: *a}", "more than 200000 values; aliases count each time"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_one_workload_is_refused(text, why):
    assert pod_manifest.pod(text) == Refusal(why)


def test_aliases_count_each_time():
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in zip("abcde", "bcdef", strict=True)
    ]

    small, large = (pod_manifest.documents("\n".join(lines[:number])) for number in (4, 6))

    assert isinstance(small, list)
    assert large == Refusal("more than 200000 values; aliases count each time")


INVALID = {
    "a container that is a text": {"containers": ["c"]},
    "a selector that is a list": {"nodeSelector": ["x"]},
    "a key that is no text": {"nodeSelector": {None: "x"}},
}


@pytest.mark.parametrize("spec", INVALID.values(), ids=INVALID)
def test_an_invalid_pod_is_refused(spec):
    found = pod_manifest.decode({"metadata": {}, "spec": spec})

    assert isinstance(found, Refusal)
    assert found.reason.startswith("not a valid pod: ")


NOT_SCHEDULED = {
    "a pod with a node": (
        {**SPEC, "nodeName": "node-1"},
        "the pod sets spec.nodeName (node-1), so it is not scheduled",
    ),
}


@pytest.mark.parametrize(("spec", "why"), NOT_SCHEDULED.values(), ids=NOT_SCHEDULED)
def test_a_pod_that_is_not_scheduled_is_refused(spec, why):
    assert pod_manifest.schedulable(read({"kind": "Pod", "spec": spec})) == Refusal(why)


def test_a_pod_with_a_bad_request_is_refused():
    meta = {"name": "p", "annotations": {"gpu.mps.io/cards": "many"}}

    found = pod_manifest.pod(json.dumps({"kind": "Pod", "metadata": meta, "spec": SPEC}))

    assert isinstance(found, Refusal)
    assert "gpu.mps.io/cards" in found.reason


@given(st.sampled_from(["limits", "requests"]), st.integers(0, 8), st.booleans())
@settings(max_examples=50)
def test_a_quantity_may_be_a_number_or_a_text(field, count, quoted):
    amount = str(count) if quoted else count
    spec = {"containers": [{"name": "c", "resources": {field: {"nvidia.com/gpu": amount}}}]}

    found = pod_manifest.decode({"metadata": {}, "spec": spec})

    assert isinstance(found, Pod)
    assert getattr(found.spec.containers[0].resources, field) == {"nvidia.com/gpu": str(count)}


TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.text("abc Pod", max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["kind", "metadata", "name", "spec", "template", "items", "containers"]), inner
        ),
    ),
    max_leaves=10,
)


@given(st.sampled_from(["Pod", "Job", "CronJob", "List", "PodList"]), TREES, TREES)
@settings(max_examples=100)
def test_json_of_any_shape_is_a_pod_or_a_refusal(kind, metadata, spec):
    text = json.dumps({"kind": kind, "metadata": metadata, "spec": spec, "items": [spec]})

    assert isinstance(pod_manifest.pod(text), Pod | Refusal)


UNREADABLE = {
    "a date that does not exist": "kind: Pod\nspec: {a: 2001-13-01}",
    "a number that is none": "kind: Pod\nspec: {a: !!int x}",
    "a number of too many digits": f"kind: Pod\nspec: {{a: {'9' * 5000}}}",
    "a truth value that is none": "kind: Pod\nspec: {a: !!bool x}",
    "a time that is none": "kind: Pod\nspec: {a: !!timestamp x}",
    "half a character": 'kind: Pod\nmetadata: {name: "\\ud800"}\nspec: {}',
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_a_value_that_cannot_be_read_is_refused(text):
    assert isinstance(pod_manifest.pod(text), Refusal)


def test_aliases_in_pairs_count_each_time():
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} !!pairs [{', '.join([f'k: *a{n - 1}'] * 10)}]" for n in range(1, 6)]

    assert isinstance(pod_manifest.pod("kind: Pod\nspec: {}\n" + "\n".join(lines)), Refusal)
