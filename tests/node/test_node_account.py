"""What an agent may do with the token of its node, and what whoever takes over that node may not."""

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.kube import client, config
from croupier.kube.client import Client, Deletion
from croupier.kube.errors import ApiError, NotFound
from croupier.lab import borrowed
from croupier.lab.cluster import Cluster
from tests.kube.waiting import until_async
from tests.node.node_rights import account, rights


@pytest.fixture(scope="module")
def ours(cluster: Cluster, crds: Any) -> Iterator[str]:
    name = borrowed.create_namespace(cluster, "agent-rights")
    with rights(cluster, name):
        yield name
    borrowed.delete_namespace(cluster, name)


@dataclass
class Floor:
    """Two nodes with a pod each; the agent speaks as the one on `mine`."""

    api: Client
    agent: Client
    namespace: str
    mine: str
    theirs: str


@pytest_asyncio.fixture
async def floor(cluster: Cluster, ours: str, tmp_path: Path) -> AsyncIterator[Floor]:
    stem = secrets.token_hex(3)
    mine, theirs = f"mine-{stem}", f"theirs-{stem}"
    speaker = account(cluster, ours, mine, tmp_path)
    async with (
        client.connect(config.load(cluster.kubeconfig)) as api,
        client.connect(config.load(speaker), field_manager="croupier-node") as agent,
    ):
        made = Floor(api, agent, ours, mine, theirs)
        for node in (mine, theirs):
            await api.create(kinds.NODES, {"metadata": {"name": node, "labels": {"zone": "a"}}})
            await api.create(kinds.PODS, _pod(node), namespace=ours)
        await _until_held(made)
        try:
            yield made
        finally:
            for node in (mine, theirs):
                with contextlib.suppress(NotFound):
                    at_once = Deletion(grace_seconds=0)
                    await api.delete(kinds.PODS, f"on-{node}", namespace=ours, how=at_once)
                await api.delete(kinds.NODES, node)


def _pod(node: str) -> dict[str, Any]:
    main = {"name": "main", "image": "none"}
    meta = {"name": f"on-{node}", "labels": {"app": "x"}, "annotations": {"team": "a"}}
    return {"metadata": meta, "spec": {"nodeName": node, "containers": [main]}}


async def _until_held(floor: Floor) -> None:
    """A new policy takes a moment to be in force, and there are three."""
    labels = {"metadata": {"labels": {"nvidia.com/gpu.count": "1"}}}

    async def held() -> bool:
        tries = (
            floor.agent.patch(kinds.NODES, floor.theirs, labels, dry_run=True),
            floor.agent.patch(
                kinds.PODS, f"on-{floor.theirs}", labels, namespace=floor.namespace, dry_run=True
            ),
            floor.agent.create(
                kinds.LEASES, _lease(floor, "another"), namespace=floor.namespace, dry_run=True
            ),
        )
        said = [await _answer(one) for one in tries]
        return all("alone" in one for one in said)

    await until_async(held, "the policies to be in force")


async def _answer(work: Any) -> str:
    """What the API server says; nothing if it agrees."""
    try:
        await work
    except ApiError as error:
        return str(error)
    return ""


def _lease(floor: Floor, node: str, name: str | None = None) -> dict[str, Any]:
    meta = {"name": name or f"gpu-node-{node}", "annotations": {"gpu.deckhouse.io/node": node}}
    return {"metadata": meta, "spec": {}}


def _labels(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": {key.replace("_", "/", 1): text for key, text in labels.items()}}}


def _status(**fields: Any) -> dict[str, Any]:
    return {"status": fields}


async def test_of_its_own_node_an_agent_tells_what_it_sees(floor):
    condition = {"type": "MIGLayoutApplied", "status": "True", "reason": "Applied", "message": ""}
    allocation = {"metadata": {"annotations": {"gpu.mps.io/allocation": "[]"}}}
    agent, node, pod = floor.agent, floor.mine, f"on-{floor.mine}"

    for _ in range(2):  # the second time there is something to change
        await agent.patch(kinds.NODES, node, _labels(**{"nvidia.com_gpu.count": "4"}))
        await agent.patch(kinds.NODES, node, _status(conditions=[condition]), subresource="status")
    await agent.patch(kinds.NODES, node, {"metadata": {"labels": {"nvidia.com/gpu.count": None}}})
    await agent.apply(kinds.LEASES, _lease(floor, node), namespace=floor.namespace)
    await agent.patch(kinds.LEASES, f"gpu-node-{node}", {"spec": {}}, namespace=floor.namespace)
    await agent.patch(kinds.PODS, pod, allocation, namespace=floor.namespace)
    await agent.delete(kinds.PODS, pod, namespace=floor.namespace, how=Deletion(grace_seconds=0))


READY = {"type": "Ready", "status": "True", "reason": "Forged", "message": ""}
ALONE = "alone"
NOTHING_ELSE = "nothing else"

NODE_FORGERIES = {
    "another node": (True, {"metadata": {"labels": {"nvidia.com/gpu.count": "9"}}}, None, ALONE),
    "a label of somebody else's": (False, {"metadata": {"labels": {"zone": "b"}}}, None, NOTHING_ELSE),
    "a label taken away": (False, {"metadata": {"labels": {"zone": None}}}, None, NOTHING_ELSE),
    "an annotation": (False, {"metadata": {"annotations": {"run.ai/mig.config": ""}}}, None, NOTHING_ELSE),
    "a cordon": (False, {"spec": {"unschedulable": True}}, None, NOTHING_ELSE),
    "that it is Ready": (False, {"status": {"conditions": [READY]}}, "status", NOTHING_ELSE),
    "allocatable": (False, {"status": {"allocatable": {"nvidia.com/gpu": "9"}}}, "status", NOTHING_ELSE),
    "the status of another": (True, {"status": {"conditions": []}}, "status", ALONE),
}


@pytest.mark.parametrize(("theirs", "patch", "of", "said"), NODE_FORGERIES.values(), ids=NODE_FORGERIES)
async def test_what_an_agent_may_not_say_of_nodes(floor, theirs, patch, of, said):
    node = floor.theirs if theirs else floor.mine

    assert said in await _answer(floor.agent.patch(kinds.NODES, node, patch, subresource=of))


POD_FORGERIES = {
    "a pod elsewhere": (True, {"metadata": {"annotations": {"gpu.mps.io/allocation": "[]"}}}, ALONE),
    "another annotation": (False, {"metadata": {"annotations": {"team": "b"}}}, NOTHING_ELSE),
    "a new annotation": (False, {"metadata": {"annotations": {"owner": "me"}}}, NOTHING_ELSE),
    "an annotation taken away": (False, {"metadata": {"annotations": {"team": None}}}, NOTHING_ELSE),
    "a label": (False, {"metadata": {"labels": {"app": "y"}}}, NOTHING_ELSE),
    "its deadline": (False, {"spec": {"activeDeadlineSeconds": 1}}, NOTHING_ELSE),
}


@pytest.mark.parametrize(("theirs", "patch", "said"), POD_FORGERIES.values(), ids=POD_FORGERIES)
async def test_what_an_agent_may_not_do_to_pods(floor, theirs, patch, said):
    pod = f"on-{floor.theirs if theirs else floor.mine}"

    assert said in await _answer(floor.agent.patch(kinds.PODS, pod, patch, namespace=floor.namespace))


async def test_an_agent_removes_no_pod_of_another_node_and_writes_no_other_lease(floor):
    agent, here = floor.agent, floor.namespace
    await floor.api.create(kinds.LEASES, _lease(floor, floor.theirs), namespace=here)

    assert ALONE in await _answer(agent.delete(kinds.PODS, f"on-{floor.theirs}", namespace=here))
    stolen = {"metadata": {"annotations": {"gpu.deckhouse.io/node": floor.mine}}}
    assert ALONE in await _answer(
        agent.patch(kinds.LEASES, f"gpu-node-{floor.theirs}", stolen, namespace=here)
    )
    other = _lease(floor, floor.mine, name="croupier-manager")
    assert ALONE in await _answer(agent.create(kinds.LEASES, other, namespace=here))
    assert "forbidden" in await _answer(agent.create(kinds.PODS, _pod(floor.mine), namespace=here))
