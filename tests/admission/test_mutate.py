"""Mutation of a pod: the patch is valid, idempotent, and changes only card resources."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from croupier.admission import mutate
from croupier.admission.mutate import PodMutator
from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.api import convert_pod
from croupier.api.core_v1 import Pod
from croupier.core import jsonpatch, quantity
from croupier.core.availability import Availability
from croupier.core.fallbacks import fallback
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.pods.request_parser import CARDS, GPU, LEDGER, MIG, PERCENT, POOL, RATIO

ONE_G, TWO_G, THREE_G = f"{MIG}1g.10gb", f"{MIG}2g.20gb", f"{MIG}3g.40gb"
SMALL_SLICES = {ONE_G: "28", TWO_G: "0"}

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples/pod"
READINGS = {
    f"{path.stem}: {case['name']}": case
    for path in sorted((ROOT / "scenarios/requests").glob("*.yaml"))
    for case in yaml.safe_load(path.read_text())["cases"]
}
"""Every kind of request, as the ledger reads it."""

Raw = dict[str, Any]


def cluster(*nodes: dict[str, str]) -> Availability:
    known = Availability()
    for number, allocatable in enumerate(nodes):
        amounts = {name: quantity.parse(written) for name, written in allocatable.items()}
        known.set_node(f"node-{number}", amounts)
    return known


def pod(*limits: dict[str, str], **annotations: str) -> Raw:
    """As the API server stores it, with requests equal to limits; one container for each of `limits`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "training-job", "annotations": annotations, "unknown": [1, {"to": "us"}]},
        "spec": {
            "containers": [container(f"c{number}", one) for number, one in enumerate(limits)],
            "unheardOf": {"field": True},
        },
    }


def container(name: str, limits: dict[str, str]) -> Raw:
    return {"name": name, "resources": {"requests": dict(limits), "limits": dict(limits)}, "new": "field"}


def rewritten(
    found: Raw, known: Availability, policy: FallbackPolicy | None = None
) -> tuple[Raw, AdmissionVerdict]:
    verdict = mutate.rewrite(found, known, policy or FallbackPolicy())
    assert verdict.allowed, verdict.sentence
    return jsonpatch.apply(found, verdict.operations), verdict


def limits(found: Raw) -> list[dict[str, str]]:
    assert all(
        one["resources"]["limits"] == one["resources"]["requests"] for one in found["spec"]["containers"]
    )
    return [one["resources"]["limits"] for one in found["spec"]["containers"]]


def test_all_steps_form_one_patch():
    asked = pod({TWO_G: "1", "cpu": "1"}, {"cpu": "2"}, **{CARDS: "2", RATIO: "50"})

    after, verdict = rewritten(asked, cluster(SMALL_SLICES))

    assert limits(after) == [{"cpu": "1", PERCENT: "100", ONE_G: "1", LEDGER: "1"}, {"cpu": "2"}]
    assert after["metadata"]["annotations"][fallback.ANNOTATION] == "2g.20gb->1g.10gb"
    assert verdict.fallbacks == (("2g.20gb", "1g.10gb"),)
    (warning,) = verdict.warnings
    assert f"no node offers {TWO_G}" in warning
    assert [note.sentence for note in verdict.events] == [warning]


def test_a_marked_pod_gets_the_second_scheduler_if_there_is_one():
    verdict = mutate.rewrite(pod({GPU: "1"}), cluster({GPU: "1"}), FallbackPolicy(), scheduler="second")
    plain = mutate.rewrite(pod({"cpu": "1"}), cluster({GPU: "1"}), FallbackPolicy(), scheduler="second")

    assert jsonpatch.apply(pod({GPU: "1"}), verdict.operations)["spec"]["schedulerName"] == "second"
    assert plain == AdmissionVerdict()


def test_a_request_by_annotations_alone():
    asked = pod({}, **{RATIO: "30"})
    del asked["spec"]["containers"][0]["resources"]

    after, _ = rewritten(asked, cluster())

    assert limits(after) == [{PERCENT: "30", LEDGER: "1"}]


def test_a_pod_that_needs_nothing_gets_no_patch():
    asked = pod({TWO_G: "1", LEDGER: "1"})

    assert rewritten(asked, cluster({TWO_G: "8", THREE_G: "4"})) == (asked, AdmissionVerdict())


def test_a_pod_that_stays_pending_is_marked():
    after, verdict = rewritten(pod({TWO_G: "1"}), cluster({"cpu": "8"}))

    assert limits(after) == [{TWO_G: "1", LEDGER: "1"}]
    assert fallback.ANNOTATION not in after["metadata"]["annotations"]
    assert len(verdict.warnings) == 1


DENIED = {
    "by its annotations": (pod({GPU: "1"}, **{RATIO: "half"}), "annotation gpu.mps.io/ratio is"),
    "by the cluster's policy": (pod({TWO_G: "1"}), f"no node offers {TWO_G}"),
    "by its own invalid policy": (
        pod({TWO_G: "1"}, **{"gpu-webhook.k8s.io/fallback-policy": "sideways"}),
        "annotation gpu-webhook.k8s.io/fallback-policy is",
    ),
    "by its shape": ({"spec": {"containers": "many"}}, "spec.containers must be a list"),
}


@pytest.mark.parametrize(("asked", "sentence"), DENIED.values(), ids=DENIED)
def test_a_refused_pod_is_not_changed(asked, sentence):
    verdict = mutate.rewrite(asked, cluster({"cpu": "8"}), FallbackPolicy(when_nothing_fits="Deny"))

    assert (verdict.allowed, verdict.operations) == (False, ())
    assert verdict.sentence.startswith(sentence)


@pytest.mark.parametrize("case", READINGS.values(), ids=READINGS)
def test_admission_and_the_ledger_read_a_request_in_the_same_way(case):
    requests = case.get("requests", {})
    asked = pod(requests, **case.get("annotations", {}))
    offers_all = cluster({name: "8" for name in requests if name.startswith(MIG)})
    asked["metadata"]["annotations"].pop("gpu.mps.io/container", None)  # only admission reads that one

    verdict = mutate.rewrite(asked, offers_all, FallbackPolicy())

    assert verdict.sentence == case.get("refused", "")
    if verdict.allowed:
        seen = convert_pod.view(_decoded(jsonpatch.apply(asked, verdict.operations)))
        assert [str(want) for want in seen.wants] == case["wants"]
        assert seen.marked == bool(seen.wants) or LEDGER in requests


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_admitted_and_marked(path):
    example = yaml.safe_load(path.read_text())

    after, verdict = rewritten(example, cluster({GPU: "8", TWO_G: "3"}))

    assert after["spec"]["containers"][0]["resources"]["limits"][LEDGER] == "1"
    assert verdict.warnings == ()


def test_the_mirror_of_a_static_pod_is_not_changed():
    mirror = pod({TWO_G: "1"}, **{"kubernetes.io/config.mirror": "hash"})

    assert mutate.rewrite(mirror, cluster(SMALL_SLICES), FallbackPolicy()) == AdmissionVerdict()


def test_the_next_pod_uses_new_resources_and_new_settings():
    known, policies = (
        cluster(SMALL_SLICES),
        [FallbackPolicy(), FallbackPolicy(direction="off"), FallbackPolicy()],
    )
    mutator = PodMutator(known, policies.pop)
    request = AdmissionRequest(uid="1", object=pod({TWO_G: "1"}))

    assert mutator.mutate(request).fallbacks == (("2g.20gb", "1g.10gb"),)
    assert mutator.mutate(request).fallbacks == ()
    known.set_node("node-0", {TWO_G: quantity.parse("8")})
    assert mutator.mutate(request).warnings == ()


RESOURCES = st.sampled_from([GPU, PERCENT, LEDGER, ONE_G, TWO_G, THREE_G, f"{MIG}odd", f"{POOL}a", "cpu"])
AMOUNTS = st.dictionaries(RESOURCES, st.integers(0, 150).map(str), max_size=4)
CONTAINERS = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c"]), "image": st.just("any")},
    optional={
        "resources": st.none() | st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS}),
        "restartPolicy": st.just("Always"),
        "future": st.just([{"field": None}]),
    },
)
EQUAL = AMOUNTS.map(lambda amounts: container("equal", amounts))
COUNTS = st.integers(1, 4).map(str) | st.text(max_size=2)
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        CARDS: COUNTS,
        RATIO: COUNTS,
        "gpu.mps.io/container": st.sampled_from(["a", "b"]),
        "gpu-webhook.k8s.io/min-memory": st.sampled_from(["10Gi", "half"]),
        "other": st.text(max_size=2),
    },
)
PODS = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINERS | EQUAL, min_size=1, max_size=3)},
            optional={"initContainers": st.lists(CONTAINERS | EQUAL, max_size=2), "future": st.just({})},
        )
    },
    optional={"metadata": st.fixed_dictionaries({}, optional={"annotations": st.none() | ANNOTATIONS})},
)
NODES = st.lists(
    st.dictionaries(st.sampled_from([GPU, ONE_G, TWO_G, THREE_G]), st.sampled_from(["0", "1", "8"])),
    max_size=2,
)
POLICIES = st.builds(
    FallbackPolicy,
    direction=st.sampled_from(["nearest", "down", "up", "off"]),
    prefer_available=st.booleans(),
    quantities=st.sampled_from(["keep", "scale"]),
)
WORLDS = st.tuples(PODS, NODES.map(lambda nodes: cluster(*nodes)), POLICIES)


@given(WORLDS)
def test_any_object_gets_a_decision_and_is_not_modified(world):
    asked, known, policy = world
    kept = deepcopy(asked)

    verdict = mutate.rewrite(asked, known, policy)

    assert asked == kept
    assert verdict.allowed or (verdict.sentence and not verdict.operations)


@given(WORLDS)
def test_a_second_pass_changes_nothing(world):
    asked, known, policy = world
    verdict = mutate.rewrite(asked, known, policy)
    if not verdict.allowed:
        return

    again = mutate.rewrite(jsonpatch.apply(asked, verdict.operations), known, policy)

    assert again.allowed, again.sentence
    assert (again.operations, again.fallbacks) == ((), ())


@given(WORLDS)
def test_only_resources_and_our_annotation_are_touched(world):
    asked, known, policy = world
    verdict = mutate.rewrite(asked, known, policy)
    if not verdict.allowed:
        return

    after = jsonpatch.apply(asked, verdict.operations)

    assert _rest(after) == _rest(asked)


@given(WORLDS)
def test_only_offered_or_requested_resources_remain(world):
    asked, known, policy = world
    verdict = mutate.rewrite(asked, known, policy)
    if not verdict.allowed:
        return

    invented = _named(jsonpatch.apply(asked, verdict.operations)) - _named(asked)

    assert all(known.exists(name) for name in invented - {PERCENT, LEDGER})


@given(WORLDS)
def test_the_extender_reads_the_intended_request(world):
    asked, known, policy = world
    verdict = mutate.rewrite(asked, known, policy)
    if not verdict.allowed or verdict.fallbacks:
        return

    before = convert_pod.view(_decoded({**asked, "spec": {**asked["spec"], "nodeName": "placed"}}))
    after = convert_pod.view(_decoded(jsonpatch.apply(asked, verdict.operations)))

    assert (after.wants, after.trouble) == (before.wants, before.trouble)
    assert after.marked or not after.wants


def _decoded(found: Raw) -> Pod:
    plain = deepcopy(found)
    for one in (*plain["spec"]["containers"], *plain["spec"].get("initContainers", ())):
        if one.get("resources") is None:
            one.pop("resources", None)
    if (plain.get("metadata") or {}).get("annotations") is None:
        plain.get("metadata", {}).pop("annotations", None)
    return msgspec.convert(plain, Pod)


def _rest(found: Raw) -> Raw:
    """The pod without card resources, our annotation, and the maps that were added for them."""
    plain = deepcopy(found)
    for one in (*plain["spec"]["containers"], *plain["spec"].get("initContainers", ())):
        resources = one.pop("resources", None) or {}
        for kind in ("requests", "limits"):
            one[kind] = {
                name: amount for name, amount in (resources.get(kind) or {}).items() if name == "cpu"
            }
    metadata = plain.pop("metadata", None) or {}
    annotations = metadata.pop("annotations", None) or {}
    annotations.pop(fallback.ANNOTATION, None)
    return plain | {"rest": (metadata, annotations)}


def _named(found: Raw) -> set[str]:
    """Requested resources of all containers."""
    return {
        name
        for one in (*found["spec"]["containers"], *found["spec"].get("initContainers", ()))
        for kind in ("requests", "limits")
        for name, amount in ((one.get("resources") or {}).get(kind) or {}).items()
        if amount != "0" and name != "cpu"
    }
