"""`croupier explain pod` on a real API server: where a pod was placed, or why it is pending."""

import asyncio
import json
from typing import Any

import pytest
import yaml

from croupier.api import kinds, quotas
from croupier.kube.client.api_client import Client
from croupier.kube.client.resource import Resource
from tests.cli import env
from tests.cli.env import croupier
from tests.polling import until_async

DEPLOYMENTS: Resource[dict[str, Any]] = Resource("apps", "v1", "deployments", "Deployment", True, dict)


@pytest.fixture
def ask(cluster):
    return lambda *args, **more: croupier("explain", "pod", *args, kubeconfig=cluster.kubeconfig, **more)


async def test_a_pod_that_fits_nowhere(api, crds, clean_cluster, namespace, ask):
    await env.node(api, "near-1")
    await env.node(api, "far-1")
    await env.node(api, "closed-1", unschedulable=True)
    await env.ledger(api, "near-1", {"a/one/u1": 60}, {"a/one/u1": 60})
    await env.ledger(api, "far-1", {"a/two/u2": 100}, {"a/two/u2": 100})
    await env.ledger(api, "closed-1", {}, {})
    await api.create(kinds.PODS, env.pod(namespace, cards="2", ratio="50"))

    answer = ask(f"{namespace}/trainer")

    assert answer.code == 1
    sentence = (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 needs 2 cards with 50 % free but has 0."
    )
    assert f"Pod {namespace}/trainer: {sentence}" in answer.out
    assert "requests   50 % of 2 cards" in answer.out
    assert "2 nodes: needs 2 cards with 50 % free but has 0\n      far-1, near-1" in answer.out
    assert "near-1: card 0 is short by 10 %, card 1 is short by 10 %" in answer.out
    assert "40 % free; a/one 60 %" in answer.out
    assert "40 % of 2 cards on near-1" in answer.out

    data = ask("trainer", "-n", namespace, "-o", "json").data
    assert (data["state"], data["sentence"]) == ("Pending", sentence)
    assert [miss["node"] for miss in data["nearest"]] == ["near-1", "far-1"]
    assert data["instead"] == [{"asks": ["40 % of 2 cards"], "node": "near-1"}]


async def test_the_nearest_of_two_nodes_is_the_one_with_more_free_cards(
    api, crds, clean_cluster, namespace, ask, cluster
):
    """explain and what-if name node-2 with 8 free, not node-1 with 4, and say that no node has 12."""
    await env.node(api, "node-1")
    await env.node(api, "node-2")
    await env.ledger(api, "node-1", *[{}] * 4)
    await env.ledger(api, "node-2", *[{}] * 8)
    wanted = env.pod(namespace, cards="12", ratio="100")
    await api.create(kinds.PODS, wanted)
    never = "no node has 12 cards, the largest has 8: the pod cannot start even if all cards are free"

    told = croupier("what-if", "-f", "-", kubeconfig=cluster.kubeconfig, stdin=yaml.safe_dump(wanted))
    for answer in (ask(f"{namespace}/trainer"), told):
        assert f"note       {never}" in answer.out
        nearest = answer.out[answer.out.index("Nearest:") :]
        assert nearest.index("node-2: the node has only 8 cards for it") < nearest.index("node-1: ")
        bars = nearest[nearest.index("node-2") : nearest.index("node-1: ")]
        assert bars.count("100 % free") == 8, "the bars show the cards that the words count"
    data = ask("trainer", "-n", namespace, "-o", "json").data
    assert [(miss["node"], len(miss["cards"])) for miss in data["nearest"]] == [("node-2", 8), ("node-1", 4)]


async def test_a_pod_of_a_pool_that_is_closed_reads_the_sentence_of_the_pool(
    api, crds, clean_cluster, namespace, ask, cluster
):
    await env.node(api, "node-1")
    await env.ledger(api, "node-1", {})
    why = "none of the 2 cards that the pool selects can have its allocation"
    spec = {"allocation": {"mode": "MIG", "migProfile": "7g.80gb"}}
    await api.create(kinds.GPU_POOLS, {"metadata": {"name": "team-a"}, "spec": spec})
    status = {"message": why, "lastTransitionTime": "2030-01-31T12:00:00Z"}
    conditions = [
        {"type": "Misconfigured", "status": "True", "reason": "LayoutImpossible", **status},
        {"type": "Available", "status": "False", "reason": "Misconfigured", **status},
    ]
    await api.patch(kinds.GPU_POOLS, "team-a", {"status": {"conditions": conditions}}, subresource="status")
    body = env.pod(namespace)
    body["spec"]["containers"][0]["resources"]["limits"]["gpu.deckhouse.io/team-a"] = "1"
    await api.create(kinds.PODS, body)

    assert f"note       pool team-a is not available: {why}" in ask(f"{namespace}/trainer").out
    assert f"Misconfigured: {why}" in croupier("pools", kubeconfig=cluster.kubeconfig).out


async def test_a_pod_that_would_fit(api, crds, clean_cluster, namespace, ask):
    await env.node(api, "roomy-1")
    await api.create(kinds.PODS, env.pod(namespace, gpus=1))

    answer = ask(f"{namespace}/trainer")

    assert answer.code == 0
    assert "the pod would fit on roomy-1 now; it waits for the scheduler" in answer.out


async def test_a_pod_that_is_bound(api, crds, clean_cluster, namespace, ask):
    await env.node(api, "home-1")
    made = await api.create(kinds.PODS, env.pod(namespace, cards="2", ratio="50"))
    key = f"{namespace}/trainer/{made.metadata.uid}"
    await env.ledger(api, "home-1", {key: 50}, {key: 50}, held={key: "2100-01-01T00:00:00Z"})
    held = ask(f"{namespace}/trainer").out
    assert "state      Held until 2100-01-01 00:00:00 UTC on home-1" in held

    binding = {"metadata": {"name": "trainer"}, "target": {"kind": "Node", "name": "home-1"}}
    await api.create(kinds.PODS, binding, namespace=namespace, name="trainer", subresource="binding")
    await api.patch(kinds.NODE_RESERVATIONS, "home-1", {"spec": {"held": None}})
    answer = ask(f"{namespace}/trainer")

    assert answer.code == 0
    assert "is bound to home-1 and holds 50 % of card 0 and 50 % of card 1" in answer.out
    assert "state      Bound on home-1\n  since      20" in answer.out
    assert "card       1 (home-1-gpu-1): 50 %" in answer.out
    data = ask(f"{namespace}/trainer", "-o", "json").data
    assert data["holds"]["cards"][0] == {"card": "home-1-gpu-0", "index": 0, "percent": 50}


async def test_without_a_stored_ledger_the_allocations_of_pods_are_used(api, clean_cluster, namespace, ask):
    await env.node(api, "counted-1")
    written = json.dumps([{"card": "counted-1-gpu-1", "index": 1, "percent": 100}])
    body = env.pod(namespace, "running", gpus=1, allocation=written)
    body["spec"]["nodeName"] = "counted-1"
    await api.create(kinds.PODS, body)
    await api.create(kinds.PODS, env.pod(namespace, "second", gpus=2))

    assert "holds card 1" in ask(f"{namespace}/running").out
    assert "needs 2 free cards but has 1" in ask(f"{namespace}/second").out


async def test_invalid_requests_and_unmarked_pods(api, crds, clean_cluster, namespace, ask):
    await api.create(kinds.PODS, env.pod(namespace, "bad", ratio="50%"))
    await api.create(kinds.PODS, env.pod(namespace, "plain", marked=False, gpus=1))

    bad, plain = ask(f"{namespace}/bad"), ask(f"{namespace}/plain")

    assert (bad.code, plain.code) == (1, 0)
    assert 'annotation gpu.mps.io/ratio is "50%": it must be a whole number from 1 to 100' in bad.out
    assert "asks for 1 card; it does not request gpu.mps.io/ledger" in plain.out


def test_a_missing_pod_is_reported_in_one_sentence(cluster, ask):
    missing = ask("default/no-such-pod")

    assert missing.code == 1
    assert missing.err.startswith("croupier: ")
    assert "there is no pod no-such-pod in namespace default" in missing.err


async def test_a_pod_of_another_namespace_is_found_there(api, crds, ask, namespace):
    await api.create(kinds.PODS, env.pod(namespace, "elsewhere", gpus=1, marked=False))

    missing = ask("default/elsewhere")

    assert missing.code == 1
    assert f"there is a pod elsewhere in namespace {namespace}" in missing.err


@pytest.mark.parametrize(
    "typed", [["a/b/c"], ["/b"], ["a/b", "-n", "c"], ["a/b", "-o", "wide"]], ids=" ".join
)
def test_invalid_arguments_exit_with_2(typed):
    assert croupier("explain", "pod", *typed).code == 2


async def test_a_pod_rejected_by_a_quota_is_explained_by_its_deployment(api, lab, namespace, ask):
    """Needs `lab`, because its controller manager creates the pods of a Deployment."""
    hard = {"requests.gpu.deckhouse.io/team-a": "3"}
    quota = {"metadata": {"name": "cards", "namespace": namespace}, "spec": {"hard": hard}}
    await api.create(quotas.RESOURCE_QUOTAS.raw, quota)
    await until_async(lambda: counted(api, namespace), "the quota to be counted", within=60)
    body = env.pod(namespace, "unused", marked=False)
    body["spec"]["containers"][0]["resources"] = {"limits": {"gpu.deckhouse.io/team-a": "4"}}
    labels = {"app": "web"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": body["spec"]},
    }
    await api.create(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": namespace}, "spec": spec})

    async def rejected() -> env.CommandResult | None:
        answer = await asyncio.to_thread(ask, f"{namespace}/web")
        return answer if "does not exist" in answer.out else None

    answer = await until_async(rejected, "the ReplicaSet to be rejected", within=60)

    assert answer is not None
    assert answer.code == 1
    assert f"Pod {namespace}/web does not exist: ReplicaSet web-" in answer.out
    sentence = (
        "ResourceQuota cards blocks the pod: it asks for 4 of gpu.deckhouse.io/team-a, and 0 of 3 are used"
    )
    assert sentence in answer.out
    data = ask(f"{namespace}/web", "-o", "json").data
    assert (data["state"], data["quota"], data["sentence"]) == ("Absent", "cards", sentence)

    await api.delete(quotas.RESOURCE_QUOTAS, "cards", namespace=namespace)
    assert "ResourceQuota cards blocked the pod and does not exist any more" in ask(f"{namespace}/web").out
    await api.delete(DEPLOYMENTS, "web", namespace=namespace)


async def counted(api: Client, namespace: str) -> bool:
    quota = await api.get(quotas.RESOURCE_QUOTAS, "cards", namespace=namespace)
    return bool(quota.status.used)
