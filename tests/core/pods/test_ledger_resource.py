"""Admission adds the annotated percent and the ledger resource to pods that request cards."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core import jsonpatch
from croupier.core.jsonpatch import Operation
from croupier.core.model.refusal import Refusal
from croupier.core.pods import ledger_resource, podspec_view, request_parser
from croupier.core.pods.ledger_resource import CONTAINER_ANNOTATION
from croupier.core.pods.podspec_view import PodSpecView
from croupier.core.pods.request_parser import CARDS, GPU, LEDGER, MIG, PERCENT, POOL, RATIO

Limits = dict[str, str]

TWO_HALVES = {CARDS: "2", RATIO: "50"}


def pod(
    main: Limits | None = None, helper: Limits | None = None, *, early: Limits | None = None, **how: Any
) -> dict[str, Any]:
    """A pod with two containers and an init container; `how` may add annotations or a sidecar."""
    before = container("early", early) | ({"restartPolicy": "Always"} if how.get("sidecar") else {})
    return {
        "metadata": {"name": "trainer", "annotations": how.get("annotations", {})},
        "spec": {
            "containers": [container("main", main), container("helper", helper)],
            "initContainers": [before],
        },
    }


def container(name: str, limits: Limits | None) -> dict[str, Any]:
    """A container with requests equal to its limits, as the API server sets them."""
    return {"name": name} | ({"resources": {"requests": limits, "limits": dict(limits)}} if limits else {})


def spec(raw: dict[str, Any]) -> PodSpecView:
    read = podspec_view.read(raw)
    assert not isinstance(read, Refusal)
    return read


def done(raw: dict[str, Any], decision: tuple[Operation, ...] | Refusal) -> dict[str, Any]:
    assert not isinstance(decision, Refusal), decision
    changed: dict[str, Any] = jsonpatch.apply(raw, decision)
    return changed


def shared(raw: dict[str, Any]) -> dict[str, Any]:
    return done(raw, ledger_resource.add_percent(spec(raw)))


def marked(raw: dict[str, Any]) -> dict[str, Any]:
    return done(raw, ledger_resource.add_ledger_resource(spec(raw)))


SHARED = {
    "the first container requests": (
        pod(annotations=TWO_HALVES),
        pod({PERCENT: "100"}, annotations=TWO_HALVES),
    ),
    "in addition to its other requests": (
        pod({"cpu": "1", GPU: "1"}, annotations=TWO_HALVES),
        pod({"cpu": "1", GPU: "1", PERCENT: "100"}, annotations=TWO_HALVES),
    ),
    "a ratio alone": (
        pod(annotations={RATIO: "30"}),
        pod({PERCENT: "30"}, annotations={RATIO: "30"}),
    ),
    "cards alone, as the API server writes a thousand": (
        pod(annotations={CARDS: "10"}),
        pod({PERCENT: "1k"}, annotations={CARDS: "10"}),
    ),
    "the named container": (
        pod(annotations={**TWO_HALVES, CONTAINER_ANNOTATION: "helper"}),
        pod(None, {PERCENT: "100"}, annotations={**TWO_HALVES, CONTAINER_ANNOTATION: "helper"}),
    ),
    "a sidecar by name": (
        pod(sidecar=True, annotations={RATIO: "5", CONTAINER_ANNOTATION: "early"}),
        pod(early={PERCENT: "5"}, sidecar=True, annotations={RATIO: "5", CONTAINER_ANNOTATION: "early"}),
    ),
    "a zero request counts as none": (
        pod({PERCENT: "0"}, annotations={RATIO: "5"}),
        pod({PERCENT: "5"}, annotations={RATIO: "5"}),
    ),
}

LEFT_ALONE = {
    "no annotation": pod({GPU: "1"}),
    "the annotations of others": pod(annotations={"example.com/ratio": "half"}),
    "percent as a resource": pod({PERCENT: "40"}),
    "the same percent": pod({PERCENT: "100"}, annotations=TWO_HALVES),
    "the same percent, in two containers": pod({PERCENT: "60"}, {PERCENT: "40"}, annotations=TWO_HALVES),
    "percent of the named container": pod(
        None, {PERCENT: "100"}, annotations={**TWO_HALVES, CONTAINER_ANNOTATION: "helper"}
    ),
    "a name and percent as a resource": pod({PERCENT: "40"}, annotations={CONTAINER_ANNOTATION: "main"}),
    "a pool, which counts its own cards": pod({f"{POOL}shared": "100"}, annotations=TWO_HALVES),
}

DENIED = {
    "an invalid annotation": (
        pod(annotations={RATIO: "50%"}),
        'annotation gpu.mps.io/ratio is "50%": '
        'it must be a whole number from 1 to 100, in digits only, such as "50"',
    ),
    "an invalid annotation that would not be used": (
        pod({GPU: "1"}, annotations={CARDS: "all"}),
        'annotation gpu.mps.io/cards is "all": '
        'it must be a whole number from 1 to 32, in digits only, such as "2"',
    ),
    "another percent": (
        pod({PERCENT: "50"}, annotations=TWO_HALVES),
        "the pod asks for 50 of gpu.mps.io/percent, but its annotations say "
        "gpu.mps.io/cards 2 × gpu.mps.io/ratio 50 = 100; they must agree",
    ),
    "too much percent, in two containers": (
        pod({PERCENT: "100"}, {PERCENT: "1"}, annotations=TWO_HALVES),
        "the pod asks for 101 of gpu.mps.io/percent, but its annotations say "
        "gpu.mps.io/cards 2 × gpu.mps.io/ratio 50 = 100; they must agree",
    ),
    "percent of how many cards": (
        pod({PERCENT: "150"}),
        "the pod asks for 150 of gpu.mps.io/percent, which does not say of how many cards: ask for up to 100 "
        "(one card), for whole cards (200, 300 ... 3200), or set the annotations gpu.mps.io/cards and "
        "gpu.mps.io/ratio",
    ),
    "two pools": (
        pod({f"{POOL}a": "1"}, {f"{POOL}b": "1"}),
        "MixedPoolRequest: the pod asks for pools a and b; all its containers together may ask for one pool",
    ),
    "a missing container": (
        pod(annotations={RATIO: "5", CONTAINER_ANNOTATION: "trainer"}),
        'annotation gpu.mps.io/container is "trainer": '
        'the pod has no such container; it has "main", "helper", "early"',
    ),
    "a container that another one contradicts": (
        pod({PERCENT: "5"}, annotations={RATIO: "5", CONTAINER_ANNOTATION: "helper"}),
        'annotation gpu.mps.io/container is "helper", but container "main" requests '
        "gpu.mps.io/percent; they must agree",
    ),
    "a container without a request": (
        pod({GPU: "1"}, annotations={CONTAINER_ANNOTATION: "main"}),
        'annotation gpu.mps.io/container is "main", but the pod requests no cards: '
        "set gpu.mps.io/cards and gpu.mps.io/ratio, or remove the annotation",
    ),
}

MARKED = {
    "whole cards": (pod({GPU: "1"}), pod({GPU: "1", LEDGER: "1"})),
    "MIG devices": (pod({f"{MIG}1g.10gb": "2"}), pod({f"{MIG}1g.10gb": "2", LEDGER: "1"})),
    "percent": (pod({PERCENT: "50"}), pod({PERCENT: "50", LEDGER: "1"})),
    "a pool": (pod({f"{POOL}a": "1"}), pod({f"{POOL}a": "1", LEDGER: "1"})),
    "the container that requests cards": (pod(None, {GPU: "1"}), pod(None, {GPU: "1", LEDGER: "1"})),
    "the first container that requests cards": (
        pod({GPU: "1"}, {GPU: "1"}),
        pod({GPU: "1", LEDGER: "1"}, {GPU: "1"}),
    ),
    "an init container": (pod(early={GPU: "1"}), pod(early={GPU: "1", LEDGER: "1"})),
    "a zero ledger resource counts as none": (pod({GPU: "1", LEDGER: "0"}), pod({GPU: "1", LEDGER: "1"})),
}

UNMARKED = {
    "no cards": pod({"cpu": "1", "example.com/gpu": "1"}),
    "zero cards": pod({GPU: "0"}),
    "already set": pod({GPU: "1", LEDGER: "1"}),
    "already set on another container": pod({GPU: "1"}, {LEDGER: "1"}),
    "only the ledger resource": pod({LEDGER: "1"}),
}


@pytest.mark.parametrize(("before", "after"), SHARED.values(), ids=SHARED)
def test_the_annotated_percent_is_added(before, after):
    assert shared(before) == after


@pytest.mark.parametrize("before", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_pods_without_annotated_percent_stay_unchanged(before):
    assert ledger_resource.add_percent(spec(before)) == ()


@pytest.mark.parametrize(("before", "sentence"), DENIED.values(), ids=DENIED)
def test_invalid_requests_are_denied(before, sentence):
    assert ledger_resource.add_percent(spec(before)) == Refusal(sentence)


@pytest.mark.parametrize(("before", "after"), MARKED.values(), ids=MARKED)
def test_pods_that_request_cards_get_the_ledger_resource(before, after):
    assert marked(before) == after


@pytest.mark.parametrize("before", UNMARKED.values(), ids=UNMARKED)
def test_other_pods_do_not_get_the_ledger_resource(before):
    assert ledger_resource.add_ledger_resource(spec(before)) == ()


def test_a_pod_of_many_containers_is_refused_in_one_readable_line():
    crowd = pod(annotations={CONTAINER_ANNOTATION: "x"})
    crowd["spec"]["containers"] = [container(f"c\n{number}", None) for number in range(100)]

    decision = ledger_resource.add_percent(spec(crowd))

    assert isinstance(decision, Refusal)
    assert decision.reason.endswith(r'"c\n0", "c\n1", "c\n2", "c\n3", "c\n4" and 96 more')


RESOURCES = st.sampled_from([GPU, PERCENT, LEDGER, f"{MIG}1g.10gb", f"{POOL}a", "cpu"])
LIMITS = st.dictionaries(RESOURCES, st.integers(0, 200).map(str), max_size=3)
WRITTEN = st.integers(-1, 120).map(str) | st.text(max_size=3)
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        CARDS: WRITTEN,
        RATIO: WRITTEN,
        CONTAINER_ANNOTATION: st.sampled_from(["main", "early", "other"]),
    },
)
PODS = st.builds(
    lambda main, helper, early, **how: pod(main, helper, early=early, **how),
    LIMITS,
    LIMITS,
    LIMITS,
    annotations=ANNOTATIONS,
    sidecar=st.booleans(),
)


@given(PODS)
def test_a_share_is_never_counted_twice(raw):
    decision = ledger_resource.add_percent(spec(raw))
    if isinstance(decision, Refusal):
        return

    before, after = spec(raw), spec(done(raw, decision))

    assert request_parser.read(podspec_view.total(after), after.annotations) == request_parser.read(
        podspec_view.total(before), before.annotations
    )


@given(PODS)
def test_the_changes_are_idempotent(raw):
    first = ledger_resource.add_percent(spec(raw))
    if isinstance(first, Refusal):
        return
    once = marked(done(raw, first))

    assert ledger_resource.add_percent(spec(once)) == ()
    assert ledger_resource.add_ledger_resource(spec(once)) == ()


@given(PODS)
def test_cards_and_the_ledger_resource_come_together(raw):
    after = spec(marked(raw))

    if any(ledger_resource.asks_for_cards(view) for view in after.containers):
        (container_, *_) = [view for view in after.containers if view.asks.get(LEDGER)]
        assert container_.requests[LEDGER] == container_.limits[LEDGER]


CHOSEN = {
    "unset": (None, "second"),
    "the default scheduler": ("default-scheduler", "second"),
    "the same": ("second", "second"),
    "a scheduler that the owner chose": ("volcano", "volcano"),
}


@pytest.mark.parametrize(("before", "after"), CHOSEN.values(), ids=CHOSEN)
def test_a_pod_with_the_ledger_resource_is_assigned_to_our_scheduler(before, after):
    raw = pod({GPU: "1", LEDGER: "1"})
    if before is not None:
        raw["spec"]["schedulerName"] = before

    assert done(raw, ledger_resource.set_scheduler(spec(raw), "second"))["spec"]["schedulerName"] == after


def test_a_pod_without_the_ledger_resource_keeps_its_scheduler():
    assert ledger_resource.set_scheduler(spec(pod({"cpu": "1"})), "second") == ()
