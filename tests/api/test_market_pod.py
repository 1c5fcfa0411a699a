"""What the CPU market reads off a pod."""

from typing import Any

import msgspec
import pytest

from croupier.api import market_pod
from croupier.api.core_v1 import Pod
from croupier.core.market import terms
from croupier.core.market.terms import Terms


def container(name: str = "main", request: str = "100m", limit: str = "500m", **more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": request}, "limits": {"cpu": limit} if limit else {}}
    return {"name": name, "resources": resources, **more}


def pod(*containers: dict[str, Any], status: dict[str, Any] | None = None, **meta: Any) -> Pod:
    known = {"name": "p", "namespace": "team", "labels": {"mbcas.io/managed": "true"}, **meta}
    spec = {"containers": [one for one in containers if "restartPolicy" not in one] or [container()]}
    spec["initContainers"] = [one for one in containers if "restartPolicy" in one]
    body = {"metadata": known, "spec": spec, "status": {"qosClass": "Burstable", **(status or {})}}
    return msgspec.convert(body, Pod)


def told(name: str, limit: str | None) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {"cpu": limit} if limit else {}}}


def test_the_limit_of_a_pod_is_that_of_its_containers_and_sidecars():
    sidecar = container("side", limit="105m", restartPolicy="Always")
    before = container("setup", limit="4", restartPolicy="")

    found = pod(container(), sidecar, before)

    assert market_pod.limit(found) == 61, "605m in quanta of 10m, a started one in full"
    assert market_pod.request(found) == 20
    assert market_pod.shape(found).original == 61
    assert market_pod.shape(found, 80).original == 80


def test_what_the_kubelet_enforces_is_known_when_it_has_told_of_every_container():
    two = (container("a"), container("b"))

    assert market_pod.applied(pod(*two)) is None
    half = {"containerStatuses": [told("a", "300m"), told("b", None)]}
    assert market_pod.applied(pod(*two, status=half)) is None
    whole = {"containerStatuses": [told("a", "300m"), told("b", "1")]}
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
    "somebody else writes it": (pod(annotations={"vpaUpdates": VPA}), "Autoscaler"),
}


@pytest.mark.parametrize(("found", "word"), UNFIT.values(), ids=UNFIT)
def test_why_a_limit_may_not_move(found, word):
    unfit = terms.unmovable(market_pod.shape(found))

    assert unfit is not None
    assert unfit.word == word


def test_an_autoscaler_that_leaves_limits_alone_is_no_rival():
    only_requests = "Pod resources updated by hamster: container 0: cpu request, memory request"

    assert terms.unmovable(market_pod.shape(pod(annotations={"vpaUpdates": only_requests}))) is None


def test_memory_that_is_pinned_keeps_cpu_off_its_request():
    memory = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "500m", "memory": "1024Mi"}}

    shape = market_pod.shape(pod(container(resources=memory)))

    assert shape.memory_pinned
    assert terms.lowest(shape) == 11
    assert isinstance(terms.read(shape, capacity=400), Terms)
