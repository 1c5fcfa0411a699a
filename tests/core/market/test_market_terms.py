"""Annotations of owners, messages about invalid ones, and pods that are never resized."""

from dataclasses import replace

import pytest

from croupier.core.market import terms
from croupier.core.market.terms import MarketTerms, PodShape
from croupier.core.model.reason import Reason

CAPACITY = 800
PLAIN = PodShape("team", request=20, original=100, labels={terms.MANAGED: "true"})


def read(shape: PodShape = PLAIN, **annotations: str) -> MarketTerms | Reason:
    noted = {f"mbcas.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return terms.read(
        replace(shape, annotations=noted), capacity=CAPACITY, protected=frozenset({"kube-system"})
    )


def test_the_default_is_latency_between_the_request_and_the_capacity():
    assert read() == MarketTerms(book="latency", weight=20_000, floor=20, cap=CAPACITY)


READ = {
    "class": ({"class": "elastic"}, {"book": "elastic"}),
    "weight": ({"weight": "2.5"}, {"weight": 50_000}),
    "a small weight": ({"weight": "0.001"}, {"weight": 20}),
    "bounds": ({"min_cpu": "500m", "max_cpu": "2"}, {"floor": 50, "cap": 200}),
    "bounds are rounded inwards": ({"min_cpu": "501m", "max_cpu": "1.999"}, {"floor": 51, "cap": 199}),
    "a minimum below the request": ({"min_cpu": "10m"}, {"floor": 20}),
    "a target in percent": ({"throttle_target": "5%"}, {"throttle_target": 50}),
    "a target as a fraction": ({"throttle_target": "0.125"}, {"throttle_target": 125}),
    "paused": ({"paused": "true"}, {"paused": True}),
}


@pytest.mark.parametrize(("annotations", "changed"), READ.values(), ids=READ)
def test_annotations_of_owners(annotations, changed):
    plain = read()
    assert isinstance(plain, MarketTerms)
    assert read(**annotations) == replace(plain, **changed)


BAD = {
    "an unknown class": (
        {"class": "fast"},
        'annotation mbcas.io/class is "fast": it must be latency or elastic',
    ),
    "no weight": (
        {"weight": "0"},
        'annotation mbcas.io/weight is "0": it must be a number above 0 and up to 1000, such as "2" or "0.5"',
    ),
    "too much weight": ({"weight": "1000.1"}, "above 0 and up to 1000"),
    "a weight in words": ({"weight": "heavy"}, 'is "heavy"'),
    "no CPU": (
        {"min_cpu": "5x"},
        'annotation mbcas.io/min-cpu is "5x": it must be at least 10m of CPU, such as "500m" or "2"',
    ),
    "less than the kubelet can set": ({"max_cpu": "9m"}, "at least 10m"),
    "bounds crossed": (
        {"min_cpu": "2", "max_cpu": "1"},
        "annotation mbcas.io/min-cpu is 2 and mbcas.io/max-cpu is 1; the minimum must not exceed the maximum",
    ),
    "a maximum below the request": (
        {"max_cpu": "100m"},
        "annotation mbcas.io/max-cpu is 100m, but its limit cannot go below 200m because of its CPU requests;"
        " raise the annotation or lower the requests",
    ),
    "a target of everything": ({"throttle_target": "1"}, 'such as "5%" or "0.05"'),
    "yes": ({"paused": "yes"}, 'annotation mbcas.io/paused is "yes": it must be "true" or "false"'),
    "something long": ({"class": "x" * 500}, f'"{"x" * 40}…"'),
    "something strange": ({"class": 'a\n"b'}, r"a\n"),
}


@pytest.mark.parametrize(("annotations", "sentence"), BAD.values(), ids=BAD)
def test_an_invalid_annotation_makes_the_pod_ineligible(annotations, sentence):
    unfit = read(**annotations)

    assert isinstance(unfit, Reason)
    assert unfit.code == "BadAnnotation"
    assert sentence in unfit.message
    assert "\n" not in unfit.message


NEVER = {
    "no label": (replace(PLAIN, labels={}), "NotManaged"),
    "a label that says something else": (replace(PLAIN, labels={terms.MANAGED: "yes"}), "NotManaged"),
    "kube-system": (replace(PLAIN, namespace="kube-system"), "Protected"),
    "a static pod": (replace(PLAIN, kind="static"), "StaticPod"),
    "a mirror pod": (replace(PLAIN, kind="mirror"), "MirrorPod"),
    "a Windows pod": (replace(PLAIN, kind="Windows"), "WindowsPod"),
    "BestEffort": (replace(PLAIN, qos="BestEffort"), "BestEffort"),
    "a container without a limit": (replace(PLAIN, unlimited=("side",)), "NoCPULimit"),
    "Guaranteed": (replace(PLAIN, qos="Guaranteed"), "Guaranteed"),
    "a container that would restart": (replace(PLAIN, restarting=("main",)), "RestartPolicy"),
    "a VerticalPodAutoscaler for the same field": (replace(PLAIN, autoscaler="vpa"), "Autoscaler"),
}


@pytest.mark.parametrize(("shape", "reason"), NEVER.values(), ids=NEVER)
def test_ineligible_pods(shape, reason):
    unfit = read(shape)

    assert isinstance(unfit, Reason)
    assert unfit.code == reason
    assert str(unfit).startswith(f"{reason}: ")


def test_a_podallocation_by_hand_needs_no_label_but_a_resizable_pod():
    assert terms.not_resizable(replace(PLAIN, labels={})) is None
    assert terms.not_resizable(replace(PLAIN, labels={}, kind="static")) is not None


def test_owners_can_opt_in_to_more():
    guaranteed = replace(PLAIN, qos="Guaranteed", request=100, restarting=("main",))
    allowed = read(guaranteed, allow_guaranteed="true", allow_restart="true")

    assert isinstance(allowed, MarketTerms)
    assert allowed.floor == 50, "requests change with limits, but not below half of the original"
    told = read(guaranteed, allow_guaranteed="true", allow_restart="true", min_cpu="100m")
    assert isinstance(told, MarketTerms)
    assert told.floor == 10


def test_a_pod_one_step_from_guaranteed_stays_one_step_away():
    pinned = read(replace(PLAIN, memory_pinned=True))

    assert isinstance(pinned, MarketTerms)
    assert pinned.floor == PLAIN.request + 1
