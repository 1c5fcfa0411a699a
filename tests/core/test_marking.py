"""A request reaches the ledger by a resource: what annotations say becomes one, and cards bring the mark."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core import jsonpatch
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import marking, podspec, request
from croupier.core.pods.marking import CONTAINER, Changed, Denied, Unchanged
from croupier.core.pods.podspec import PodSpec
from croupier.core.pods.request import CARDS, GPU, MARK, MIG, PERCENT, POOL, RATIO

Limits = dict[str, str]

TWO_HALVES = {CARDS: "2", RATIO: "50"}


def pod(
    main: Limits | None = None, helper: Limits | None = None, *, early: Limits | None = None, **how: Any
) -> dict[str, Any]:
    """A pod of two containers and an init container; `how` may bring annotations or a sidecar."""
    before = container("early", early) | ({"restartPolicy": "Always"} if how.get("sidecar") else {})
    return {
        "metadata": {"name": "trainer", "annotations": how.get("annotations", {})},
        "spec": {
            "containers": [container("main", main), container("helper", helper)],
            "initContainers": [before],
        },
    }


def container(name: str, limits: Limits | None) -> dict[str, Any]:
    """With its limits as requests too, as the API server makes them."""
    return {"name": name} | ({"resources": {"requests": limits, "limits": dict(limits)}} if limits else {})


def spec(found: dict[str, Any]) -> PodSpec:
    read = podspec.read(found)
    assert not isinstance(read, Refused)
    return read


def done(found: dict[str, Any], decision: Changed | Unchanged | Denied) -> dict[str, Any]:
    assert not isinstance(decision, Denied), decision
    changed: dict[str, Any] = jsonpatch.apply(
        found, decision.operations if isinstance(decision, Changed) else ()
    )
    return changed


def shared(found: dict[str, Any]) -> dict[str, Any]:
    return done(found, marking.percent(spec(found)))


def marked(found: dict[str, Any]) -> dict[str, Any]:
    return done(found, marking.mark(spec(found)))


SHARED = {
    "the first container asks": (
        pod(annotations=TWO_HALVES),
        pod({PERCENT: "100"}, annotations=TWO_HALVES),
    ),
    "beside what it asks for already": (
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
    "the named one": (
        pod(annotations={**TWO_HALVES, CONTAINER: "helper"}),
        pod(None, {PERCENT: "100"}, annotations={**TWO_HALVES, CONTAINER: "helper"}),
    ),
    "a sidecar by name": (
        pod(sidecar=True, annotations={RATIO: "5", CONTAINER: "early"}),
        pod(early={PERCENT: "5"}, sidecar=True, annotations={RATIO: "5", CONTAINER: "early"}),
    ),
    "zero is nothing yet": (
        pod({PERCENT: "0"}, annotations={RATIO: "5"}),
        pod({PERCENT: "5"}, annotations={RATIO: "5"}),
    ),
}

LEFT_ALONE = {
    "no annotation": pod({GPU: "1"}),
    "the annotations of others": pod(annotations={"example.com/ratio": "half"}),
    "percent as a resource": pod({PERCENT: "40"}),
    "percent that says the same": pod({PERCENT: "100"}, annotations=TWO_HALVES),
    "percent that says the same, in parts": pod({PERCENT: "60"}, {PERCENT: "40"}, annotations=TWO_HALVES),
    "percent of the named one": pod(None, {PERCENT: "100"}, annotations={**TWO_HALVES, CONTAINER: "helper"}),
    "a name and percent as a resource": pod({PERCENT: "40"}, annotations={CONTAINER: "main"}),
    "a pool, which counts its own cards": pod({f"{POOL}shared": "100"}, annotations=TWO_HALVES),
}

DENIED = {
    "what cannot be read, with the sentence of everybody who reads it": (
        pod(annotations={RATIO: "50%"}),
        'annotation gpu.mps.io/ratio is "50%": '
        'it must be a whole number from 1 to 100, in digits only, such as "50"',
    ),
    "even if it would not be used": (
        pod({GPU: "1"}, annotations={CARDS: "all"}),
        'annotation gpu.mps.io/cards is "all": '
        'it must be a whole number from 1 to 32, in digits only, such as "2"',
    ),
    "percent that says something else": (
        pod({PERCENT: "50"}, annotations=TWO_HALVES),
        "the pod asks for 50 of gpu.mps.io/percent, but its annotations say "
        "gpu.mps.io/cards 2 × gpu.mps.io/ratio 50 = 100; they must agree",
    ),
    "percent that says too much, in parts": (
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
    "a container that is not there": (
        pod(annotations={RATIO: "5", CONTAINER: "trainer"}),
        'annotation gpu.mps.io/container is "trainer": '
        'the pod has no such container; it has "main", "helper", "early"',
    ),
    "a container that another one contradicts": (
        pod({PERCENT: "5"}, annotations={RATIO: "5", CONTAINER: "helper"}),
        'annotation gpu.mps.io/container is "helper", but it is container "main" that asks for '
        "gpu.mps.io/percent; they must agree",
    ),
    "a container and nothing for it": (
        pod({GPU: "1"}, annotations={CONTAINER: "main"}),
        'annotation gpu.mps.io/container is "main", but nothing says what it gets: '
        "set gpu.mps.io/cards and gpu.mps.io/ratio, or remove it",
    ),
}

MARKED = {
    "whole cards": (pod({GPU: "1"}), pod({GPU: "1", MARK: "1"})),
    "MIG devices": (pod({f"{MIG}1g.10gb": "2"}), pod({f"{MIG}1g.10gb": "2", MARK: "1"})),
    "percent": (pod({PERCENT: "50"}), pod({PERCENT: "50", MARK: "1"})),
    "a pool": (pod({f"{POOL}a": "1"}), pod({f"{POOL}a": "1", MARK: "1"})),
    "the container that asks": (pod(None, {GPU: "1"}), pod(None, {GPU: "1", MARK: "1"})),
    "the first of those that ask": (pod({GPU: "1"}, {GPU: "1"}), pod({GPU: "1", MARK: "1"}, {GPU: "1"})),
    "an init container": (pod(early={GPU: "1"}), pod(early={GPU: "1", MARK: "1"})),
    "a mark of zero is none": (pod({GPU: "1", MARK: "0"}), pod({GPU: "1", MARK: "1"})),
}

UNMARKED = {
    "no cards": pod({"cpu": "1", "example.com/gpu": "1"}),
    "zero cards": pod({GPU: "0"}),
    "marked by hand": pod({GPU: "1", MARK: "1"}),
    "marked by hand elsewhere": pod({GPU: "1"}, {MARK: "1"}),
    "nothing but the mark": pod({MARK: "1"}),
}


@pytest.mark.parametrize(("before", "after"), SHARED.values(), ids=SHARED)
def test_what_annotations_say_is_asked_for(before, after):
    assert shared(before) == after


@pytest.mark.parametrize("before", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_needs_no_percent_is_left_alone(before):
    assert marking.percent(spec(before)) == Unchanged()


@pytest.mark.parametrize(("before", "sentence"), DENIED.values(), ids=DENIED)
def test_what_cannot_be_meant_is_refused(before, sentence):
    assert marking.percent(spec(before)) == Denied(sentence)


@pytest.mark.parametrize(("before", "after"), MARKED.values(), ids=MARKED)
def test_who_asks_for_cards_gets_the_mark(before, after):
    assert marked(before) == after


@pytest.mark.parametrize("before", UNMARKED.values(), ids=UNMARKED)
def test_who_needs_no_mark_gets_none(before):
    assert marking.mark(spec(before)) == Unchanged()


def test_a_pod_of_many_containers_is_refused_in_one_readable_line():
    crowd = pod(annotations={CONTAINER: "x"})
    crowd["spec"]["containers"] = [container(f"c\n{number}", None) for number in range(100)]

    decision = marking.percent(spec(crowd))

    assert isinstance(decision, Denied)
    assert decision.sentence.endswith(r'"c\n0", "c\n1", "c\n2", "c\n3", "c\n4" and 96 more')


RESOURCES = st.sampled_from([GPU, PERCENT, MARK, f"{MIG}1g.10gb", f"{POOL}a", "cpu"])
LIMITS = st.dictionaries(RESOURCES, st.integers(0, 200).map(str), max_size=3)
WRITTEN = st.integers(-1, 120).map(str) | st.text(max_size=3)
ANNOTATIONS = st.fixed_dictionaries(
    {}, optional={CARDS: WRITTEN, RATIO: WRITTEN, CONTAINER: st.sampled_from(["main", "early", "other"])}
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
def test_a_share_is_never_counted_twice(found):
    decision = marking.percent(spec(found))
    if isinstance(decision, Denied):
        return

    before, after = spec(found), spec(done(found, decision))

    assert request.read(podspec.total(after), after.annotations) == request.read(
        podspec.total(before), before.annotations
    )


@given(PODS)
def test_doing_it_again_changes_nothing(found):
    first = marking.percent(spec(found))
    if isinstance(first, Denied):
        return
    once = marked(done(found, first))

    assert marking.percent(spec(once)) == Unchanged()
    assert marking.mark(spec(once)) == Unchanged()


@given(PODS)
def test_cards_and_the_mark_come_together(found):
    after = spec(marked(found))

    if any(marking.asks_for_cards(view) for view in after.containers):
        (one, *_) = [view for view in after.containers if view.asks.get(MARK)]
        assert one.requests[MARK] == one.limits[MARK]


CHOSEN = {
    "nobody yet": (None, "second"),
    "the default one, as the API server writes it": ("default-scheduler", "second"),
    "the same": ("second", "second"),
    "another, by its owner": ("volcano", "volcano"),
}


@pytest.mark.parametrize(("before", "after"), CHOSEN.values(), ids=CHOSEN)
def test_a_marked_pod_goes_to_the_scheduler_that_asks_us(before, after):
    found = pod({GPU: "1", MARK: "1"})
    if before is not None:
        found["spec"]["schedulerName"] = before

    assert done(found, marking.hand_over(spec(found), "second"))["spec"]["schedulerName"] == after


def test_a_pod_without_the_mark_stays_with_its_scheduler():
    assert marking.hand_over(spec(pod({"cpu": "1"})), "second") == Unchanged()
