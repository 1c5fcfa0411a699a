"""Conversion of pods for device plugins: requests by container in order, and the granted cards."""

from datetime import UTC, datetime

import msgspec
import pytest

from croupier.api import convert_pod
from croupier.api.core_v1 import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from croupier.api.meta import ObjectMeta
from croupier.api.mps import allocation
from croupier.core.model.card import CardGrant
from croupier.core.nodes.kubelet_assignments import BoundPod, ContainerRequest
from croupier.core.pods import request_parser
from croupier.core.quantity import NANO, Quantity
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
    assert convert_pod.bound(source) == expected


RESOURCES = {
    "only a limit": ResourceRequirements(limits={GPU: "2"}),
    "only a request": ResourceRequirements(requests={GPU: "2"}),
    "a request next to a limit of something else": ResourceRequirements(
        requests={GPU: "2"}, limits={"cpu": "1"}
    ),
    "a request next to a limit of other cards": ResourceRequirements(
        requests={GPU: "2"}, limits={PERCENT: "50"}
    ),
    "a limit next to a request of something else": ResourceRequirements(
        requests={"cpu": "1"}, limits={GPU: "2"}
    ),
    "a request below the limit": ResourceRequirements(requests={GPU: "1"}, limits={GPU: "2"}),
}


@pytest.mark.parametrize("resources", RESOURCES.values(), ids=RESOURCES)
def test_a_device_plugin_counts_what_the_ledger_counts(resources):
    source = pod(Container(name="main", resources=resources))
    view, seen = convert_pod.view(source), convert_pod.bound(source)

    assert seen is not None
    amounts = {name: Quantity(amount * NANO) for name, amount in seen.wants.items()}
    assert request_parser.read(amounts, {}) == view.wants


def test_an_unbound_pod_is_skipped():
    waiting = msgspec.structs.replace(pod(gpu("main")), spec=PodSpec(containers=(gpu("main"),)))

    assert convert_pod.bound(waiting) is None


WRITTEN = {
    "percent": ([whole(0)], share(0, 50)),
    "slots": ([partitioned(1)], slots(1, "1g.10gb-0", "1g.10gb-6")),
    "time slices": ([pooled(2, "TimeSlice")], CardGrant(name(2), 3)),
}


@pytest.mark.parametrize(("cards", "part"), WRITTEN.values(), ids=WRITTEN)
def test_a_changed_allocation_can_be_decoded(cards, part):
    places = {card.id: (card.gpu.index, card.pool is not None) for card in cards}
    text = allocation.encode_for((part,), places)

    assert allocation.decode(text) == (part,)
    (entry,) = allocation.entries(text)
    assert entry.index == cards[0].gpu.index
    assert (entry.slices is not None) == (cards[0].pool is not None)
