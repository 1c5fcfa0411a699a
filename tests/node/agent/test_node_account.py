"""The permissions of an agent's token: its own node is allowed, other nodes are denied."""

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.client.errors import ApiError, NotFound
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.node.agent_account import account_kubeconfig, installed_account
from tests.polling import until_async


@pytest.fixture(scope="module")
def ours(cluster: Cluster, crds: Any) -> Iterator[str]:
    name = shared_cluster.create_namespace(cluster, "agent-rights")
    with installed_account(cluster, name):
        yield name
    shared_cluster.delete_namespace(cluster, name)


@dataclass
class AccountEnv:
    """Two nodes with a pod each. The agent has the token of `mine`."""

    api: Client
    agent: Client
    namespace: str
    mine: str
    theirs: str


@pytest_asyncio.fixture
async def env(cluster: Cluster, ours: str, tmp_path: Path) -> AsyncIterator[AccountEnv]:
    stem = secrets.token_hex(3)
    mine, theirs = f"mine-{stem}", f"theirs-{stem}"
    kubeconfig = account_kubeconfig(cluster, ours, mine, tmp_path)
    async with (
        api_client.connect(config.load(cluster.kubeconfig)) as api,
        api_client.connect(config.load(kubeconfig), field_manager="croupier-node") as agent,
    ):
        account_env = AccountEnv(api, agent, ours, mine, theirs)
        for node in (mine, theirs):
            await api.create(kinds.NODES, {"metadata": {"name": node, "labels": {"zone": "a"}}})
            await api.create(kinds.PODS, _pod(node), namespace=ours)
        await _until_held(account_env)
        try:
            yield account_env
        finally:
            for node in (mine, theirs):
                with contextlib.suppress(NotFound):
                    at_once = DeleteOptions(grace_seconds=0)
                    await api.delete(kinds.PODS, f"on-{node}", namespace=ours, how=at_once)
                await api.delete(kinds.NODES, node)


def _pod(node: str) -> dict[str, Any]:
    main = {"name": "main", "image": "none"}
    meta = {"name": f"on-{node}", "labels": {"app": "x"}, "annotations": {"team": "a"}}
    return {"metadata": meta, "spec": {"nodeName": node, "containers": [main]}}


async def _until_held(env: AccountEnv) -> None:
    """Wait until the three new admission policies are in force."""
    labels = {"metadata": {"labels": {"nvidia.com/gpu.count": "1"}}}

    async def held() -> bool:
        tries = (
            env.agent.patch(kinds.NODES, env.theirs, labels, dry_run=True),
            env.agent.patch(kinds.PODS, f"on-{env.theirs}", labels, namespace=env.namespace, dry_run=True),
            env.agent.create(kinds.LEASES, _lease(env, "another"), namespace=env.namespace, dry_run=True),
        )
        errors = [await _answer(attempt) for attempt in tries]
        return all("alone" in error for error in errors)

    await until_async(held, "the policies to be in force")


async def _answer(work: Any) -> str:
    """The error of the API server. Empty if the request succeeds."""
    try:
        await work
    except ApiError as error:
        return str(error)
    return ""


def _lease(env: AccountEnv, node: str, name: str | None = None) -> dict[str, Any]:
    meta = {"name": name or f"gpu-node-{node}", "annotations": {"gpu.deckhouse.io/node": node}}
    return {"metadata": meta, "spec": {}}


def _labels(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": {key.replace("_", "/", 1): text for key, text in labels.items()}}}


def _status(**fields: Any) -> dict[str, Any]:
    return {"status": fields}


async def test_an_agent_may_report_about_its_own_node(env):
    condition = {"type": "MIGLayoutApplied", "status": "True", "reason": "Applied", "message": ""}
    allocation = {"metadata": {"annotations": {"gpu.mps.io/allocation": "[]"}}}
    agent, node, pod = env.agent, env.mine, f"on-{env.mine}"

    for _ in range(2):  # the second time there is something to change
        await agent.patch(kinds.NODES, node, _labels(**{"nvidia.com_gpu.count": "4"}))
        await agent.patch(kinds.NODES, node, _status(conditions=[condition]), subresource="status")
    labelled = await env.api.get(kinds.NODES.raw, node)
    await agent.patch(kinds.NODES, node, {"metadata": {"labels": {"nvidia.com/gpu.count": None}}})
    await agent.apply(kinds.LEASES, _lease(env, node), namespace=env.namespace)
    await agent.patch(kinds.LEASES, f"gpu-node-{node}", {"spec": {}}, namespace=env.namespace)
    await agent.patch(kinds.PODS, pod, allocation, namespace=env.namespace)
    annotated = await env.api.get(kinds.PODS.raw, pod, namespace=env.namespace)
    await agent.delete(kinds.PODS, pod, namespace=env.namespace, how=DeleteOptions(grace_seconds=0))

    assert labelled["metadata"]["labels"]["nvidia.com/gpu.count"] == "4"
    assert [one["reason"] for one in labelled["status"]["conditions"]] == ["Applied"]
    assert (await env.api.get(kinds.NODES.raw, node))["metadata"]["labels"].get(
        "nvidia.com/gpu.count"
    ) is None
    assert annotated["metadata"]["annotations"]["gpu.mps.io/allocation"] == "[]"
    lease = await env.api.get(kinds.LEASES.raw, f"gpu-node-{node}", namespace=env.namespace)
    assert lease["metadata"]["annotations"]["gpu.deckhouse.io/node"] == node
    with pytest.raises(NotFound):
        await env.api.get(kinds.PODS, pod, namespace=env.namespace)


READY = {"type": "Ready", "status": "True", "reason": "Forged", "message": ""}
ALONE = "alone"
NOTHING_ELSE = "nothing else"

NODE_FORGERIES = {
    "another node": (True, {"metadata": {"labels": {"nvidia.com/gpu.count": "9"}}}, None, ALONE),
    "a label of another owner": (False, {"metadata": {"labels": {"zone": "b"}}}, None, NOTHING_ELSE),
    "a removed label": (False, {"metadata": {"labels": {"zone": None}}}, None, NOTHING_ELSE),
    "an annotation": (False, {"metadata": {"annotations": {"run.ai/mig.config": ""}}}, None, NOTHING_ELSE),
    "a cordon": (False, {"spec": {"unschedulable": True}}, None, NOTHING_ELSE),
    "that it is Ready": (False, {"status": {"conditions": [READY]}}, "status", NOTHING_ELSE),
    "allocatable": (False, {"status": {"allocatable": {"nvidia.com/gpu": "9"}}}, "status", NOTHING_ELSE),
    "the status of another": (True, {"status": {"conditions": []}}, "status", ALONE),
}


@pytest.mark.parametrize(("theirs", "patch", "of", "said"), NODE_FORGERIES.values(), ids=NODE_FORGERIES)
async def test_an_agent_may_not_forge_nodes(env, theirs, patch, of, said):
    node = env.theirs if theirs else env.mine

    assert said in await _answer(env.agent.patch(kinds.NODES, node, patch, subresource=of))


POD_FORGERIES = {
    "a pod elsewhere": (True, {"metadata": {"annotations": {"gpu.mps.io/allocation": "[]"}}}, ALONE),
    "another annotation": (False, {"metadata": {"annotations": {"team": "b"}}}, NOTHING_ELSE),
    "a new annotation": (False, {"metadata": {"annotations": {"owner": "me"}}}, NOTHING_ELSE),
    "a removed annotation": (False, {"metadata": {"annotations": {"team": None}}}, NOTHING_ELSE),
    "a label": (False, {"metadata": {"labels": {"app": "y"}}}, NOTHING_ELSE),
    "its deadline": (False, {"spec": {"activeDeadlineSeconds": 1}}, NOTHING_ELSE),
}


@pytest.mark.parametrize(("theirs", "patch", "said"), POD_FORGERIES.values(), ids=POD_FORGERIES)
async def test_an_agent_may_not_change_other_fields_of_pods(env, theirs, patch, said):
    pod = f"on-{env.theirs if theirs else env.mine}"

    assert said in await _answer(env.agent.patch(kinds.PODS, pod, patch, namespace=env.namespace))


async def test_an_agent_may_not_delete_pods_of_other_nodes_or_write_other_leases(env):
    agent, here = env.agent, env.namespace
    await env.api.create(kinds.LEASES, _lease(env, env.theirs), namespace=here)

    assert ALONE in await _answer(agent.delete(kinds.PODS, f"on-{env.theirs}", namespace=here))
    stolen = {"metadata": {"annotations": {"gpu.deckhouse.io/node": env.mine}}}
    assert ALONE in await _answer(agent.patch(kinds.LEASES, f"gpu-node-{env.theirs}", stolen, namespace=here))
    other = _lease(env, env.mine, name="croupier-manager")
    assert ALONE in await _answer(agent.create(kinds.LEASES, other, namespace=here))
    assert "forbidden" in await _answer(agent.create(kinds.PODS, _pod(env.mine), namespace=here))
