"""`croupier what-if`: where a workload would go, told without a single write."""

import json

import pytest
import yaml

from croupier.api import kinds
from croupier.kube.client import Selection
from tests.cli import asking
from tests.cli.asking import croupier


@pytest.fixture
def ask(cluster):
    return lambda *args, **more: croupier("what-if", "-f", "-", *args, kubeconfig=cluster.kubeconfig, **more)


async def test_copies_go_where_there_is_room_until_there_is_none(api, crds, clean_cluster, ask):
    await asking.node(api, "tried-1")
    await asking.node(api, "tried-2")
    await asking.ledger(api, "tried-1", {"a/one/u1": 60}, {})
    half = yaml.safe_dump(asking.pod("team", ratio="50"))
    before = await api.list(kinds.NODE_RESERVATIONS)

    one = ask(stdin=half)
    packed = ask("--count", "7", "--strategy", "BinPack", "-o", "json", stdin=half)
    many = ask("--count", "8", stdin=half)

    assert (one.code, packed.code, many.code) == (0, 1, 1)
    assert "It would fit now (50 % of 1 card), by Spread:" in one.out
    assert len(packed.data["placed"]) == 6
    assert packed.data["placed"][0] == {
        "node": "tried-1",
        "cards": [{"card": "tried-1-gpu-1", "index": 1, "percent": 50}],
    }
    assert "6 of 8 copies would fit now" in many.out
    assert "2 of 8 would wait" in many.out
    assert "0/2 nodes are available: 2 needs 1 card with 50 % free but has 0." in many.out
    after = await api.list(kinds.NODE_RESERVATIONS)
    assert [one.metadata.resource_version for one in after.items] == [
        one.metadata.resource_version for one in before.items
    ]
    assert (await api.list(kinds.PODS, Selection(namespace="team"))).items == []


async def test_a_deployment_a_job_and_a_list_are_read_by_their_template(api, crds, clean_cluster, ask):
    await asking.node(api, "tried-1")
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
        told = ask("-o", "json", stdin=text)
        assert told.code == 0, told
        assert told.data["asks"] == ["1 card"]
        assert told.data["placed"][0]["node"] == "tried-1"


async def test_it_respects_what_a_pod_says_of_nodes(api, crds, clean_cluster, ask):
    await asking.node(api, "tried-1")
    body = asking.pod("team", gpus=1)
    body["spec"]["nodeSelector"] = {"disk": "fast"}

    told = ask(stdin=yaml.safe_dump(body))

    assert told.code == 1
    assert "1 node(s) didn't match Pod's node affinity/selector" in told.out


BAD = {
    "nothing": ("", "has none"),
    "no YAML": ("a: [", "neither YAML nor JSON at line"),
    "no workload": ("kind: Service\nmetadata: {name: x}", "has none"),
    "two workloads": ("kind: Pod\nspec: {}\n---\nkind: Pod\nspec: {}", "has 2 of them"),
    "no spec": ("kind: Job\nspec: {}", "has no spec of a pod"),
    "no pod": ("kind: Pod\nspec: {containers: 7}", "it is no pod"),
    "bad annotation": (
        'kind: Pod\nmetadata: {annotations: {gpu.mps.io/ratio: "50%"}}\nspec: {containers: []}',
        'annotation gpu.mps.io/ratio is "50%"',
    ),
    "a node of its own": ("kind: Pod\nspec: {nodeName: node-1, containers: []}", "names its node itself"),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_what_is_no_pod_is_refused_with_exit_code_2(text, said):
    refused = croupier("what-if", "-f", "-", stdin=text)

    assert refused.code == 2
    assert said in refused.err


def test_options_that_cannot_be_meant_are_refused(tmp_path):
    assert croupier("what-if", "-f", str(tmp_path / "none.yaml")).code == 2
    assert croupier("what-if", "-f", "-", "--count", "0", stdin="kind: Pod").code == 2
    assert croupier("what-if", "-f", "-", "--strategy", "Luck", stdin="kind: Pod").code == 2
