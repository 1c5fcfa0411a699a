"""The API server itself requires the mark, even if the webhook is down."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from croupier.admission import mark_policy
from croupier.api import kinds
from croupier.api.core_v1 import MIRROR
from croupier.core.pods.request_parser import CARDS, GPU, LEDGER, MIG, PERCENT, POOL, RATIO
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import Forbidden
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.admission import cluster_env as envs
from tests.polling import until_async

ONE_G = f"{MIG}1g.10gb"
SYSTEM = "kube-system"
KINDS = "validatingadmissionpolicybinding,validatingadmissionpolicy"

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Iterator[str]:
    """A namespace with an older pod; the policy is bound to it and to kube-system."""
    name = shared_cluster.create_namespace(cluster, "policy")
    cluster.kubectl("apply", "-n", name, "-f", "-", stdin=_json(asking({GPU: "1"}, name="old")))
    where = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [name, SYSTEM]}
    wanted = mark_policy.documents({"matchExpressions": [where]})
    try:
        for one in wanted:
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(one))
        yield name
    finally:
        cluster.kubectl("delete", KINDS, mark_policy.NAME, "--ignore-not-found")
        shared_cluster.delete_namespace(cluster, name)


@pytest_asyncio.fixture
async def api(cluster: Cluster, guarded: str) -> AsyncIterator[Client]:
    """A policy is enforced only shortly after its creation."""
    async with api_client.connect(config.load(cluster.kubeconfig)) as connected:

        async def holds() -> bool:
            try:
                await create(connected, asking({GPU: "1"}), guarded)
            except Forbidden:
                return True
            return False

        await until_async(holds, "the policy")
        yield connected


async def create(api: Client, pod: Raw, namespace: str) -> Raw:
    return await api.create(kinds.PODS.raw, pod, namespace=namespace, dry_run=True)


def asking(limits: dict[str, str], early: dict[str, str] | None = None, **how: Any) -> Raw:
    made = envs.pod(how.pop("name", "new"), limits, how.pop("annotations", None), **how)
    if early is not None:
        made["spec"]["initContainers"] = [{"name": "early", "image": "any", "resources": {"limits": early}}]
    return made


def many_containers(count: int, limits: dict[str, str]) -> Raw:
    one = {"image": "any", "resources": {"limits": limits}}
    pod = asking({})
    pod["spec"]["containers"] = [{"name": f"c{number}", **one} for number in range(count)]
    return pod


REFUSED = {
    "whole cards": (asking({GPU: "1"}), mark_policy.unmarked(GPU)),
    "MIG devices": (asking({ONE_G: "1", "cpu": "1"}), mark_policy.unmarked(ONE_G)),
    "percent": (asking({PERCENT: "50"}), mark_policy.unmarked(PERCENT)),
    "a pool": (asking({f"{POOL}a": "1"}), mark_policy.unmarked(f"{POOL}a")),
    "an init container": (asking({"cpu": "1"}, {GPU: "1"}), mark_policy.unmarked(GPU)),
    "a mark of zero": (asking({GPU: "1", LEDGER: "0"}), mark_policy.unmarked(GPU)),
    "unconverted annotations": (asking({}, annotations={RATIO: "50"}), mark_policy.not_converted()),
    "the annotation for cards with a mark by hand": (
        asking({LEDGER: "1"}, annotations={CARDS: "2"}),
        mark_policy.not_converted(),
    ),
    "spec.nodeName": (asking({GPU: "1", LEDGER: "1"}, nodeName="n"), mark_policy.sets_node_name(GPU)),
    "a mirror annotation by a user": (
        asking({GPU: "1"}, nodeName="n", annotations={MIRROR: "hash"}),
        mark_policy.unmarked(GPU),
    ),
    "many containers": (many_containers(200, {GPU: "1", "cpu": "1"}), mark_policy.unmarked(GPU)),
}

ADMITTED = {
    "no cards": asking({"cpu": "1", "example.com/gpu": "1"}),
    "nothing at all": asking({}),
    "zero cards": asking({GPU: "0"}),
    "marked": asking({GPU: "1", LEDGER: "1"}),
    "marked elsewhere": asking({LEDGER: "1"}, {GPU: "1"}),
    "percent and annotations": asking({PERCENT: "100", LEDGER: "1"}, annotations={CARDS: "2", RATIO: "50"}),
    "a pool shared by annotations": asking({f"{POOL}a": "50", LEDGER: "1"}, annotations={RATIO: "50"}),
    "spec.nodeName without cards": asking({"cpu": "1"}, nodeName="n"),
    "many containers": many_containers(200, {"cpu": "1m", "memory": "1Mi", "ephemeral-storage": "1Mi"}),
}


@pytest.mark.parametrize(("pod", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_unmarked_requests_of_cards_are_refused(pod, sentence, api: Client, guarded: str):
    with pytest.raises(Forbidden) as refused:
        await create(api, pod, guarded)

    assert f"denied request: {sentence}" in str(refused.value)


@pytest.mark.parametrize("pod", ADMITTED.values(), ids=ADMITTED)
async def test_other_pods_are_admitted(pod, api: Client, guarded: str):
    created = await create(api, pod, guarded)

    assert envs.limits(created) == envs.limits(pod)
    assert created["metadata"]["namespace"] == guarded


async def test_existing_pods_can_be_updated(api: Client, guarded: str):
    change = {"metadata": {"labels": {"note": "new"}, "annotations": {RATIO: "50"}}}

    await api.patch(kinds.PODS, "old", change, namespace=guarded)

    changed = await api.get(kinds.PODS.raw, "old", namespace=guarded)
    assert changed["metadata"]["labels"]["note"] == "new"
    assert changed["metadata"]["annotations"][RATIO] == "50"


async def test_kube_system_is_excluded(api: Client):
    created = await create(api, asking({GPU: "1"}), SYSTEM)

    assert envs.limits(created) == {"main": {GPU: "1"}}
    assert created["metadata"]["namespace"] == SYSTEM


async def test_mirrors_of_static_pods_are_admitted(api: Client, cluster: Cluster, guarded: str):
    node = f"shows-{guarded}"
    made = await api.create(kinds.NODES, {"metadata": {"name": node}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": made.metadata.uid, "controller": True}
    mirror = asking({GPU: "1"}, nodeName=node, annotations={MIRROR: "hash"})
    mirror["metadata"]["ownerReferences"] = [owner]
    del mirror["spec"]["schedulerName"]
    identity = {"Impersonate-User": (f"system:node:{node}",), "Impersonate-Group": ("system:nodes",)}
    try:
        async with api_client.connect(
            replace(config.load(cluster.kubeconfig), impersonate=identity)
        ) as kubelet:
            created = await create(kubelet, mirror, guarded)
    finally:
        await api.delete(kinds.NODES, node)

    assert created["metadata"]["annotations"][MIRROR] == "hash"
    assert envs.limits(created) == {"main": {GPU: "1"}}


async def test_the_webhook_is_called_before_the_policy(api: Client, cluster: Cluster, lab: object):
    async with envs.webhook_cluster(cluster) as env, _also_guarding(cluster, env.namespace):
        await until_async(lambda: _refuses(env), "the policy to hold for another namespace")

        marked = await env.create(asking({GPU: "1"}))
        shared = await env.create(asking({}, name="shared", annotations={CARDS: "2", RATIO: "50"}))

        wrong = await env.create(asking({}, name="wrong", annotations={RATIO: "50%"}))

        assert marked.pod is not None, marked.refused
        assert envs.limits(marked.pod) == {"main": {GPU: "1", LEDGER: "1"}}
        assert shared.pod is not None, shared.refused
        assert envs.limits(shared.pod) == {"main": {PERCENT: "100", LEDGER: "1"}}
        assert 'denied the request: annotation gpu.mps.io/ratio is "50%": it must be' in wrong.refused


@contextlib.asynccontextmanager
async def _also_guarding(cluster: Cluster, namespace: str) -> AsyncIterator[None]:
    """A second binding of the policy, for another namespace."""
    where = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    _, binding = mark_policy.documents(where)
    binding["metadata"]["name"] = f"{mark_policy.NAME}-too"
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(binding))
    try:
        yield
    finally:
        cluster.kubectl("delete", "validatingadmissionpolicybinding", binding["metadata"]["name"])


async def _refuses(env: envs.WebhookClusterEnv) -> bool:
    """The webhook cannot correct spec.nodeName."""
    answer = await env.create(asking({GPU: "1"}, nodeName="n"), dry_run=True)
    return mark_policy.sets_node_name(GPU) in answer.refused


def _json(pod: Raw) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "Pod", **pod})
