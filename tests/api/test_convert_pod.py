"""Conversion of pods: requests are counted like in the API server, and no pod raises an error."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.api import convert_pod, kinds
from croupier.api.core_v1 import Pod
from croupier.api.mps import allocation
from croupier.core.model.card import CardGrant
from croupier.core.model.card_request import CardShares, MigDevices
from croupier.kube.client import codec
from croupier.kube.client.resource import Resource
from tests import polling
from tests.api import strategies
from tests.api.test_allocation import HOSTILE

GPU = "nvidia.com/gpu"
GRANT = json.dumps([{"card": "a", "index": 3, "percent": 50}])


def gpus(count: int, **more: Any) -> dict[str, Any]:
    """A container that requests this number of cards."""
    return {"image": "any", "resources": {"limits": {GPU: str(count)}}, **more}


def manifest(
    *containers: dict[str, Any], init: Any = (), name: str = "job", **annotations: str
) -> dict[str, Any]:
    def named(kind: str, ones: Any) -> list[dict[str, Any]]:
        return [{"name": f"{kind}{number}", **container} for number, container in enumerate(ones)]

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": "u1", "annotations": annotations},
        "spec": {"containers": named("c", containers), "initContainers": named("i", init)},
    }


def pod(*containers: dict[str, Any], node: str = "", phase: str = "", **more: Any) -> Pod:
    body = manifest(*containers, **more)
    body["spec"]["nodeName"] = node
    body["status"] = {"phase": phase}
    return codec.decode(Pod, json.dumps(body).encode())


def test_identity_and_node():
    seen = convert_pod.view(pod(gpus(1), node="node-1", phase="Running"))

    assert (seen.key, seen.uid, seen.node, seen.finished) == ("team/job", "u1", "node-1", False)
    assert seen.holder == "team/job/u1"
    assert convert_pod.view(pod(phase="Failed")).finished


def test_a_limit_without_a_request_counts_as_the_request():
    assert convert_pod.view(pod(gpus(2))).wants == (CardShares(2),)


def test_annotations_and_resources_are_combined():
    mig = {"resources": {"requests": {"nvidia.com/mig-1g.10gb": "1"}}}
    share = {"resources": {"requests": {"gpu.mps.io/percent": "30"}}}
    seen = convert_pod.view(pod(gpus(1), mig, share, **{allocation.RATIO: "30"}))

    assert seen.wants == (CardShares(1), MigDevices("1g.10gb", 1), CardShares(1, 30))


def test_annotations_alone_are_a_request():
    seen = convert_pod.view(pod(**{allocation.CARDS: "2", allocation.RATIO: "30"}))

    assert seen.wants == (CardShares(2, 30),)


def test_the_ledger_resource_is_recognized_and_requests_no_cards():
    seen = convert_pod.view(pod({"resources": {"limits": {allocation.MARK: "1"}}}))

    assert (seen.marked, seen.wants, seen.trouble) == (True, (), "")
    assert not convert_pod.view(pod(gpus(1))).marked


def test_an_invalid_request_becomes_trouble_without_wants():
    seen = convert_pod.view(
        pod(gpus(1), {"resources": {"limits": {allocation.MARK: "1"}}}, **{allocation.RATIO: "50%"})
    )

    assert seen.wants == ()
    assert seen.trouble.startswith('annotation gpu.mps.io/ratio is "50%"')
    assert seen.marked
    assert "is not a quantity" in convert_pod.view(pod({"resources": {"limits": {GPU: "two"}}})).trouble


def test_the_allocation_of_a_bound_pod_is_its_grant():
    seen = convert_pod.view(pod(node="node-1", **{allocation.ALLOCATION: GRANT}))

    assert (seen.grant, seen.indexes) == ((CardGrant("a", 50),), (3,))


def test_an_allocation_on_an_unbound_pod_is_ignored():
    assert convert_pod.view(pod(**{allocation.ALLOCATION: GRANT})).grant == ()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_an_invalid_allocation_is_ignored(text):
    seen = convert_pod.view(Pod(spec=pod(node="node-1").spec, metadata=_annotated(text)))

    assert seen.grant == ()


def _annotated(text: str) -> Any:
    body = {"metadata": {"annotations": {allocation.ALLOCATION: ""}}}
    made = codec.decode(Pod, json.dumps(body).encode()).metadata
    made.annotations[allocation.ALLOCATION] = text
    return made


@given(
    strategies.any_of(Pod),
    st.dictionaries(st.sampled_from([allocation.CARDS, allocation.RATIO]), strategies.TEXTS),
)
def test_any_pod_is_converted_without_an_error(any_pod, annotations):
    any_pod.metadata.annotations.update(annotations)

    seen = convert_pod.view(any_pod)

    assert not (seen.wants and seen.trouble)


SIDECAR = {"restartPolicy": "Always"}
COUNTED = {
    "containers": manifest(gpus(1), gpus(2)),
    "init": manifest(gpus(1), init=[gpus(4), gpus(2)]),
    "sidecar": manifest(gpus(1), init=[gpus(2, **SIDECAR)]),
    "sidecar-before-init": manifest(gpus(1), init=[gpus(1, **SIDECAR), gpus(3)]),
    "sidecar-after-init": manifest(gpus(1), init=[gpus(3), gpus(1, **SIDECAR)]),
    "rising": manifest(gpus(0), init=[gpus(1, **SIDECAR), gpus(2, **SIDECAR), gpus(1)]),
}
QUOTA: Resource[dict[str, Any]] = Resource("", "v1", "resourcequotas", "ResourceQuota", True, dict)


async def test_requests_match_the_quota_of_a_real_api_server(api, namespace):
    """A ResourceQuota counts the effective requests of a pod."""
    charged = await _quota(api, namespace)
    before = await charged()

    for name, body in COUNTED.items():
        placed = body | {"metadata": {"name": name, "namespace": namespace}}
        seen = convert_pod.view(await api.create(kinds.PODS, placed))
        after = await polling.until_async(_above(charged, before), f"the quota to be charged for {name}")
        assert seen.wants == (CardShares(after - before),), name
        before = after


async def _quota(api: Any, namespace: str) -> Callable[[], Awaitable[int]]:
    name, resource = "cards", f"requests.{GPU}"
    await api.create(
        QUOTA, {"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": {resource: "99"}}}
    )

    async def status() -> Any:
        return (await api.get(QUOTA, name, namespace=namespace)).get("status", {}).get("used")

    async def charged() -> int:
        return int((await status())[resource])

    await polling.until_async(status, "the quota to be counted")
    return charged


def _above(charged: Callable[[], Awaitable[int]], before: int) -> Callable[[], Awaitable[int]]:
    async def look() -> int:
        now = await charged()
        return now if now > before else 0

    return look
