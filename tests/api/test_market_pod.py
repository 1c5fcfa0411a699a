"""Conversion of pods for the CPU market."""

from typing import Any

import msgspec
import pytest

from croupier.api import market_pod
from croupier.api.core_v1 import Pod
from croupier.core.market import terms
from croupier.core.market.terms import MarketTerms


def container(name: str = "main", request: str = "100m", limit: str = "500m", **more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": request}, "limits": {"cpu": limit} if limit else {}}
    return {"name": name, "resources": resources, **more}


def pod(*containers: dict[str, Any], status: dict[str, Any] | None = None, **meta: Any) -> Pod:
    known = {"name": "p", "namespace": "team", "labels": {"mbcas.io/managed": "true"}, **meta}
    main = [spec for spec in containers if "restartPolicy" not in spec]
    spec = {"containers": main or [container()]}
    spec["initContainers"] = [spec for spec in containers if "restartPolicy" in spec]
    body = {"metadata": known, "spec": spec, "status": {"qosClass": "Burstable", **(status or {})}}
    return msgspec.convert(body, Pod)


def container_status(name: str, limit: str | None) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {"cpu": limit} if limit else {}}}


def test_the_limit_of_a_pod_is_the_sum_over_containers_and_sidecars():
    sidecar = container("side", limit="105m", restartPolicy="Always")
    before = container("setup", limit="4", restartPolicy="")

    found = pod(container(), sidecar, before)

    assert market_pod.limit(found) == 61, "605m in quanta of 10m, rounded up"
    assert market_pod.request(found) == 20
    assert market_pod.shape(found).original == 61
    assert market_pod.shape(found, 80).original == 80


def test_the_applied_limit_is_known_when_every_container_is_reported():
    two = (container("a"), container("b"))

    assert market_pod.applied(pod(*two)) is None
    half = {"containerStatuses": [container_status("a", "300m"), container_status("b", None)]}
    assert market_pod.applied(pod(*two, status=half)) is None
    whole = {"containerStatuses": [container_status("a", "300m"), container_status("b", "1")]}
    assert market_pod.applied(pod(*two, status=whole)) == 130


VPA = "Pod resources updated by hamster: container 0: cpu request, cpu limit"
RESTARTS: Any = {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}
UNFIT: dict[str, tuple[Pod, str]] = {
    "a mirror pod": (pod(annotations={"kubernetes.io/config.mirror": "x"}), "MirrorPod"),
    "a static pod": (pod(annotations={"kubernetes.io/config.source": "file"}), "StaticPod"),
    "no requests, no limits": (pod(status={"qosClass": "BestEffort"}), "BestEffort"),
    "one container without limit": (pod(container(), container("free", limit="")), "NoCPULimit"),
    "guaranteed": (pod(status={"qosClass": "Guaranteed"}), "Guaranteed"),
    "it would restart": (pod(container(**RESTARTS)), "RestartPolicy"),
    "an autoscaler sets it": (pod(annotations={"vpaUpdates": VPA}), "Autoscaler"),
}


@pytest.mark.parametrize(("unfit_pod", "reason"), UNFIT.values(), ids=UNFIT)
def test_why_a_limit_may_not_change(unfit_pod, reason):
    unfit = terms.not_resizable(market_pod.shape(unfit_pod))

    assert unfit is not None
    assert unfit.code == reason


def test_an_autoscaler_that_sets_only_requests_does_not_conflict():
    only_requests = "Pod resources updated by hamster: container 0: cpu request, memory request"

    assert terms.not_resizable(market_pod.shape(pod(annotations={"vpaUpdates": only_requests}))) is None


def test_pinned_memory_keeps_the_cpu_limit_above_the_request():
    memory = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "500m", "memory": "1024Mi"}}

    shape = market_pod.shape(pod(container(resources=memory)))

    assert shape.memory_pinned
    assert terms.lowest_limit(shape) == 11
    assert isinstance(terms.read(shape, capacity=400), MarketTerms)
