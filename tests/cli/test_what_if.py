"""`croupier what-if`: simulated placement, without writes."""

import json

import pytest
import yaml

from croupier.api import kinds
from croupier.kube.client.api_client import Selection
from tests.cli import env
from tests.cli.env import croupier


@pytest.fixture
def ask(cluster):
    return lambda *args, **more: croupier("what-if", "-f", "-", *args, kubeconfig=cluster.kubeconfig, **more)


async def test_copies_are_placed_until_the_cluster_is_full(api, crds, clean_cluster, ask):
    await env.node(api, "tried-1")
    await env.node(api, "tried-2")
    await env.ledger(api, "tried-1", {"a/one/u1": 60}, {})
    half = yaml.safe_dump(env.pod("team", ratio="50"))
    before = await api.list(kinds.NODE_RESERVATIONS)

    single = ask(stdin=half)
    packed = ask("--count", "7", "--strategy", "BinPack", "-o", "json", stdin=half)
    many = ask("--count", "8", stdin=half)

    assert (single.code, packed.code, many.code) == (0, 1, 1)
    assert "It would fit now (50 % of 1 card), by Spread:" in single.out
    assert len(packed.data["placed"]) == 6
    assert packed.data["placed"][0] == {
        "node": "tried-1",
        "cards": [{"card": "tried-1-gpu-1", "index": 1, "percent": 50}],
    }
    assert "6 of 8 copies would fit now" in many.out
    assert "2 of 8 would stay pending" in many.out
    assert "0/2 nodes are available: 2 needs 1 card with 50 % free but has 0." in many.out
    after = await api.list(kinds.NODE_RESERVATIONS)
    assert [item.metadata.resource_version for item in after.items] == [
        item.metadata.resource_version for item in before.items
    ]
    assert (await api.list(kinds.PODS, Selection(namespace="team"))).items == []


async def test_words_and_bars_show_the_cluster_with_the_copies_that_fit(api, crds, clean_cluster, ask):
    """Why the next copy waits is about the cards that the copies before it have left."""
    await env.node(api, "tried-1")
    await env.ledger(api, "tried-1", {"a/one/u1": 60}, {})
    half = yaml.safe_dump(env.pod("team", ratio="50"))

    text = ask("--count", "3", stdin=half)
    data = ask("--count", "3", "-o", "json", stdin=half).data

    assert "2 of 3 copies would fit now" in text.out
    assert "tried-1: card 0 is short by 10 %" in text.out
    near = text.out[text.out.index("Nearest:") :]
    assert "40 % free; a/one 60 %" in near
    assert "0 % free; team/trainer 50 %" in near
    [miss] = data["why"]["nearest"]
    assert [(card["index"], card["free"]) for card in miss["cards"]] == [(0, 40), (1, 0)]


async def test_reads_the_pod_template_of_deployments_jobs_and_lists(api, crds, clean_cluster, ask):
    await env.node(api, "tried-1")
    spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": spec}
    deployment = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": template}}
    job = {"kind": "Job", "metadata": {"name": "job"}, "spec": {"template": template}}
    service = {"kind": "Service", "metadata": {"name": "web"}}

    for text in (
        yaml.safe_dump(deployment),
        yaml.safe_dump_all([service, job]),
        json.dumps({"kind": "List", "items": [service, deployment]}),
    ):
        answer = ask("-o", "json", stdin=text)
        assert answer.code == 0, answer
        assert answer.data["asks"] == ["1 card"]
        assert answer.data["placed"][0]["node"] == "tried-1"


async def test_respects_the_node_selector(api, crds, clean_cluster, ask):
    await env.node(api, "tried-1")
    body = env.pod("team", gpus=1)
    body["spec"]["nodeSelector"] = {"disk": "fast"}

    answer = ask(stdin=yaml.safe_dump(body))

    assert answer.code == 1
    assert "1 node(s) didn't match Pod's node affinity/selector" in answer.out


@pytest.mark.parametrize("manager", ["InMemory", "CRD"])
@pytest.mark.usefixtures("crds", "clean_cluster")
async def test_cards_of_a_reservation_are_not_offered(manager, api, namespace, ask, cluster):
    """One of three cards is gone. The device plugin only counts, so it cannot be the held one."""
    await env.node(api, "tried-1", "H100:2")
    await env.reservation(api, namespace, "later", node="tried-1", cards=["tried-1-gpu-2"])
    if manager == "CRD":
        holder = f"{namespace}/later"
        await env.ledger(api, "tried-1", {}, {holder: 100}, held={holder: "never"}, indexes=(0, 2))
    body = env.pod(namespace, gpus=2)
    await api.create(kinds.PODS, body)

    answer = ask("-o", "json", stdin=yaml.safe_dump(body))
    explained = croupier(
        "explain", "pod", f"{namespace}/trainer", "-o", "json", kubeconfig=cluster.kubeconfig
    )

    assert (answer.code, answer.data["placed"]) == (1, [])
    assert (explained.code, explained.data["state"], explained.data["fits"]) == (1, "Pending", [])
    assert [item["asks"] for item in explained.data["instead"]] == [["1 card"]]


BAD = {
    "nothing": ("", "contains none"),
    "no YAML": ("a: [", "neither YAML nor JSON at line"),
    "no workload": ("kind: Service\nmetadata: {name: x}", "contains none"),
    "two workloads": ("kind: Pod\nspec: {}\n---\nkind: Pod\nspec: {}", "contains 2"),
    "no spec": ("kind: Job\nspec: {}", "has no pod spec"),
    "no pod": ("kind: Pod\nspec: {containers: 7}", "not a valid pod"),
    "bad annotation": (
        'kind: Pod\nmetadata: {annotations: {gpu.mps.io/ratio: "50%"}}\nspec: {containers: []}',
        'annotation gpu.mps.io/ratio is "50%"',
    ),
    "a pod with a nodeName": ("kind: Pod\nspec: {nodeName: node-1, containers: []}", "sets spec.nodeName"),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_an_invalid_manifest_exits_with_2(text, said):
    refused = croupier("what-if", "-f", "-", stdin=text)

    assert refused.code == 2
    assert said in refused.err


def test_invalid_options_exit_with_2(tmp_path):
    assert croupier("what-if", "-f", str(tmp_path / "none.yaml")).code == 2
    assert croupier("what-if", "-f", "-", "--count", "0", stdin="kind: Pod").code == 2
    assert croupier("what-if", "-f", "-", "--strategy", "Luck", stdin="kind: Pod").code == 2
