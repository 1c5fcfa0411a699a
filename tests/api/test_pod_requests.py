"""The requests of a pod are those that the scheduler of Kubernetes 1.36 counts, also during a resize."""

from typing import Any

import msgspec
import pytest

from croupier.api import pod_requests
from croupier.api.core_v1 import Pod
from croupier.api.pod_requests import LeanPod
from croupier.core import quantity
from croupier.kube.client import codec


def container(name: str = "main", *, sidecar: bool = False, **requests: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "resources": {"requests": requests}}
    return {**made, "restartPolicy": "Always"} if sidecar else made


def status(
    name: str = "main",
    *,
    has: dict[str, str] | None = None,
    promised: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The container status: the resources of the container, and the allocated resources."""
    made: dict[str, Any] = {"name": name, "ready": True, "restartCount": 0}
    if has is not None:
        made["resources"] = {"requests": has}
    if promised is not None:
        made["allocatedResources"] = promised
    return made


def pod(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    """`before`: init containers; `overhead`; `asks`: pod-level requests; everything else is its status."""
    spec: dict[str, Any] = {"nodeName": "node-1", "containers": list(containers) or [container()]}
    if "asks" in more:
        spec["resources"] = {"requests": more.pop("asks")}
    for name, field in (("before", "initContainers"), ("overhead", "overhead")):
        if name in more:
            spec[field] = more.pop(name)
    meta = {"name": "p", "namespace": "team", "uid": "u1", "resourceVersion": "1"}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", **more}}


def pending(reason: str) -> list[dict[str, str]]:
    return [
        {"type": "Ready", "status": "True"},
        {"type": "PodResizePending", "status": "True", "reason": reason},
    ]


COUNTED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a pod without requests": (pod(), {}),
    "containers add up": (pod(container("a", cpu="100m"), container("b", cpu="1")), {"cpu": "1100m"}),
    "init containers count where they need more": (
        pod(container(cpu="1", memory="1Gi"), before=[container("init", cpu="2", memory="1Mi")]),
        {"cpu": "2", "memory": "1Gi"},
    ),
    "a sidecar adds to the containers": (
        pod(container(cpu="1"), before=[container("proxy", cpu="500m", sidecar=True)]),
        {"cpu": "1500m"},
    ),
    "overhead is added": (pod(container(cpu="1"), overhead={"cpu": "250m"}), {"cpu": "1250m"}),
    "pod-level requests replace those of containers": (
        pod(container(cpu="1", memory="1Gi"), asks={"cpu": "3"}),
        {"cpu": "3", "memory": "1Gi"},
    ),
    "spellings do not matter": (
        pod(container("a", cpu="1e-1", memory="1.5Gi"), container("b", cpu="0.1", memory="512Mi")),
        {"cpu": "200m", "memory": "2Gi"},
    ),
    "a resize up counts at once": (
        pod(container(cpu="2"), containerStatuses=[status(has={"cpu": "500m"}, promised={"cpu": "500m"})]),
        {"cpu": "2"},
    ),
    "a resize down counts when it has happened": (
        pod(container(cpu="500m"), containerStatuses=[status(has={"cpu": "2"}, promised={"cpu": "500m"})]),
        {"cpu": "2"},
    ),
    "allocated resources count before they are applied": (
        pod(container(cpu="500m"), containerStatuses=[status(has={"cpu": "500m"}, promised={"cpu": "3"})]),
        {"cpu": "3"},
    ),
    "a Deferred resize counts": (
        pod(
            container(cpu="4"),
            containerStatuses=[status(has={"cpu": "1"}, promised={"cpu": "1"})],
            conditions=pending("Deferred"),
        ),
        {"cpu": "4"},
    ),
    "an Infeasible resize does not count": (
        pod(
            container(cpu="4000"),
            containerStatuses=[status(has={"cpu": "1"}, promised={"cpu": "1500m"})],
            conditions=pending("Infeasible"),
        ),
        {"cpu": "1500m"},
    ),
    "an Infeasible resize without a status counts as written": (
        pod(container(cpu="4"), containerStatuses=[status()], conditions=pending("Infeasible")),
        {"cpu": "4"},
    ),
    "allocated resources without resources do not count": (
        pod(container(cpu="1"), containerStatuses=[status(promised={"cpu": "3"})]),
        {"cpu": "1"},
    ),
    "each resource is counted separately": (
        pod(
            container(cpu="2", memory="1Gi"),
            containerStatuses=[
                status(has={"cpu": "1", "memory": "2Gi"}, promised={"cpu": "1", "memory": "1Gi"})
            ],
        ),
        {"cpu": "2", "memory": "2Gi"},
    ),
    "only the resized container changes": (
        pod(
            container("a", cpu="1"),
            container("b", cpu="1"),
            containerStatuses=[status("b", has={"cpu": "3"}), status("a", has={"cpu": "1"})],
        ),
        {"cpu": "4"},
    ),
    "sidecars are resized like containers": (
        pod(
            container(cpu="1"),
            before=[container("proxy", cpu="1", sidecar=True)],
            initContainerStatuses=[status("proxy", has={"cpu": "2"})],
        ),
        {"cpu": "3"},
    ),
    "init containers are not resized": (
        pod(
            container(cpu="1"),
            before=[container("init", cpu="2")],
            initContainerStatuses=[status("init", has={"cpu": "9"})],
        ),
        {"cpu": "2"},
    ),
    "pod-level requests are resized": (
        pod(
            container(cpu="1"),
            asks={"cpu": "2"},
            resources={"requests": {"cpu": "1", "memory": "1Gi"}},
            allocatedResources={"cpu": "3", "memory": "1Gi"},
        ),
        {"cpu": "3"},
    ),
    "an Infeasible pod-level resize does not count": (
        pod(
            container(cpu="1"),
            asks={"cpu": "200"},
            resources={"requests": {"cpu": "2"}},
            allocatedResources={"cpu": "1"},
            conditions=pending("Infeasible"),
        ),
        {"cpu": "2"},
    ),
    "devices stay with their containers": (
        pod(container(cpu="1", gpu="2"), asks={"cpu": "4", "memory": "1Gi"}),
        {"cpu": "4", "memory": "1Gi", "gpu": "2"},
    ),
}


@pytest.mark.parametrize("type_", [Pod, LeanPod])
@pytest.mark.parametrize(("body", "counted"), COUNTED.values(), ids=COUNTED)
def test_the_requests_of_a_bound_pod(body, counted, type_):
    occupant = pod_requests.occupant(codec.decode(type_, msgspec.json.encode(body)))

    assert occupant is not None
    assert (occupant.key, occupant.uid, occupant.node) == ("team/p", "u1", "node-1")
    expected = {name: quantity.parse(text) for name, text in {**counted, "pods": "1"}.items()}
    assert occupant.requests == expected


OCCUPIES_NOTHING = {
    "an unbound pod": {"spec": {"nodeName": ""}},
    "a succeeded pod": {"status": {"phase": "Succeeded"}},
    "a failed pod": {"status": {"phase": "Failed"}},
}


@pytest.mark.parametrize("type_", [Pod, LeanPod])
@pytest.mark.parametrize("change", OCCUPIES_NOTHING.values(), ids=OCCUPIES_NOTHING)
def test_unbound_and_finished_pods_request_nothing(change, type_):
    body = pod(container(cpu="1"))
    for part, fields in change.items():
        body[part] |= fields

    assert pod_requests.occupant(codec.decode(type_, msgspec.json.encode(body))) is None


def test_a_pod_that_is_being_deleted_still_counts():
    body = pod(container(cpu="1"))
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert pod_requests.occupant(codec.decode(Pod, msgspec.json.encode(body))) is not None


def test_null_lists_are_empty():
    body = pod(container(cpu="1"), containerStatuses=None, conditions=None)
    body["spec"] |= {"initContainers": None, "overhead": None}

    occupant = pod_requests.occupant(codec.decode(LeanPod, msgspec.json.encode(body)))

    assert occupant is not None
    assert occupant.requests["cpu"] == quantity.parse("1")
