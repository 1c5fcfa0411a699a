"""Conversion of pods for device plugins: requests by container in order, and the granted cards."""

from datetime import UTC, datetime

import msgspec
import pytest

from croupier.api.core_v1 import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from croupier.api.meta import ObjectMeta
from croupier.api.mps import allocation
from croupier.core.model.card import CardGrant
from croupier.core.nodes import plugin_devices
from croupier.core.nodes.kubelet_assignments import BoundPod, ContainerRequest
from croupier.node.kubelet import bound_pods
from tests.core.kubelet_env import GPU, PERCENT, name, partitioned, pooled, share, slots, whole


def gpu(called: str, many: str = "1", restart: str = "") -> Container:
    return Container(name=called, resources=ResourceRequirements(limits={GPU: many}), restart_policy=restart)


def pod(*main: Container, init: tuple[Container, ...] = (), promise: str = "", **status: object) -> Pod:
    annotations = {allocation.ALLOCATION: promise} if promise else {}
    return Pod(
        metadata=ObjectMeta(name="a", namespace="team", uid="uid-a", annotations=annotations),
        spec=PodSpec(node_name="node-1", containers=main, init_containers=init),
        status=msgspec.convert(status, PodStatus),
    )


PROMISE = f'[{{"card":"{name(0)}","index":0,"percent":100}}]'


def bound(*containers: ContainerRequest, **about) -> BoundPod:
    return BoundPod("team/a", "uid-a", containers, **about)


NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)

SEEN = {
    "requests by container, init containers first": (
        pod(gpu("main"), gpu("side", "2"), init=(gpu("setup", "2"),), promise=PROMISE),
        bound(
            ContainerRequest("setup", {GPU: 2}),
            ContainerRequest("main", {GPU: 1}),
            ContainerRequest("side", {GPU: 2}),
            wants={GPU: 3},
            grant=(share(0),),
        ),
    ),
    "the ledger resource is not a device": (
        pod(
            Container(
                name="main", resources=ResourceRequirements(limits={PERCENT: "50", "gpu.mps.io/ledger": "1"})
            )
        ),
        bound(ContainerRequest("main", {PERCENT: 50}), wants={PERCENT: 50}),
    ),
    "an invalid allocation counts as none": (
        pod(gpu("main"), promise="[{"),
        bound(ContainerRequest("main", {GPU: 1}), wants={GPU: 1}),
    ),
    "admitted by the kubelet": (
        pod(gpu("main"), startTime=datetime(2030, 1, 1, tzinfo=UTC)),
        bound(ContainerRequest("main", {GPU: 1}), wants={GPU: 1}, admitted=True),
    ),
    "the time of binding": (
        pod(gpu("main"), conditions=[{"type": "PodScheduled", "status": "True", "lastTransitionTime": NOON}]),
        bound(ContainerRequest("main", {GPU: 1}), wants={GPU: 1}, bound_at=NOON),
    ),
    "not a pod without device requests": (pod(Container(name="main")), None),
    "not a finished pod": (pod(gpu("main"), phase="Succeeded"), None),
    "not a pod with an invalid request": (pod(gpu("main", "many")), None),
}


@pytest.mark.parametrize(("source", "expected"), SEEN.values(), ids=SEEN)
def test_bound_pods_with_device_requests_are_converted(source, expected):
    assert bound_pods.bound(source) == expected


def test_an_unbound_pod_is_skipped():
    waiting = msgspec.structs.replace(pod(gpu("main")), spec=PodSpec(containers=(gpu("main"),)))

    assert bound_pods.bound(waiting) is None


WRITTEN = {
    "percent": ([whole(0)], share(0, 50)),
    "slots": ([partitioned(1)], slots(1, "1g.10gb-0", "1g.10gb-6")),
    "time slices": ([pooled(2, "TimeSlice")], CardGrant(name(2), 3)),
}


@pytest.mark.parametrize(("cards", "part"), WRITTEN.values(), ids=WRITTEN)
def test_a_changed_allocation_can_be_decoded(cards, part):
    text = bound_pods.annotation((part,), plugin_devices.served_resources(cards).cards)

    assert allocation.decode(text) == (part,)
    (entry,) = allocation.entries(text)
    assert entry.index == cards[0].index
    assert (entry.slices is not None) == (cards[0].pool is not None)
