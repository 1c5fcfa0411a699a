"""The agent process under the service account of deployments/cpu: permissions for its own node only."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from croupier.api import kinds, market_report
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import ApiError, NotFound
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.cli.command import CROUPIER
from tests.node.market_env import MarketEnv, market_env
from tests.polling import until, until_async
from tests.wiring import first_lines

MANIFEST = Path(__file__).resolve().parents[3] / "deployments/cpu/agent.yaml"
OURS = "d8-gpu-operator"
ACCOUNT = "croupier-market"


@pytest.fixture
def rights(cluster: Cluster, crds: Any, namespace: str) -> Iterator[None]:
    """The manifest without the DaemonSet, in the namespace of the test."""
    found = yaml.safe_load_all(MANIFEST.read_text().replace(OURS, namespace))
    kept = "\n---\n".join(yaml.safe_dump(one) for one in found if one["kind"] != "DaemonSet")
    cluster.kubectl("apply", "-f", "-", stdin=kept)
    yield
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=kept)


@pytest.fixture
def pod_namespace(cluster: Cluster, crds: Any) -> Iterator[str]:
    """A namespace for pods: the agent does not manage its own namespace."""
    name = shared_cluster.create_namespace(cluster, "market-pods")
    yield name
    shared_cluster.delete_namespace(cluster, name, shared_cluster.namespaced(crds))


@pytest_asyncio.fixture
async def env(cluster: Cluster, pod_namespace: str, rights: None, tmp_path: Path) -> AsyncIterator[MarketEnv]:
    (tmp_path / "cgroup").mkdir()
    async with (
        api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as api,
        market_env(api, pod_namespace, tmp_path / "cgroup") as made,
    ):
        yield made


def account(cluster: Cluster, namespace: str, node: str, folder: Path) -> Path:
    """A kubeconfig with the identity of the agent of that node."""
    said = yaml.safe_load(cluster.kubeconfig.read_text())
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    for user in said["users"]:
        user["user"] |= {
            "as": f"system:serviceaccount:{namespace}:{ACCOUNT}",
            "as-groups": groups,
            "as-user-extra": {"authentication.kubernetes.io/node-name": [node]},
        }
    path = folder / f"{node}.kubeconfig"
    path.write_text(yaml.safe_dump(said))
    return path


async def living(env: MarketEnv) -> None:
    """Advance the counters of the artificial cgroups."""
    while True:
        for guest in env.guests.values():
            guest.live(env.mount)
        await asyncio.sleep(0.5)


async def test_the_permissions_of_the_manifest_are_sufficient(env, cluster, namespace, tmp_path):
    await env.pod("busy", wants=800)
    path = account(cluster, namespace, env.node, tmp_path)
    options = ["--node", env.node, "--cgroup-mount", str(env.mount), "--every", "0.5"]
    options += ["--heartbeat", "0.5", "--health", "127.0.0.1:0", "--lease-namespace", namespace]
    log = tmp_path / "agent.log"
    with log.open("w") as out:
        agent = await asyncio.create_subprocess_exec(
            *CROUPIER, "market", "run", *options, "--kubeconfig", str(path), stdout=out, stderr=out
        )
    life = asyncio.create_task(living(env))

    async def reported() -> bool:
        name = market_report.LEASE.name(env.node)
        try:
            found = market_report.LEASE.decode(await env.api.get(kinds.LEASES, name, namespace=namespace))
        except NotFound:
            return False
        return found is not None and bool(found.pods)

    try:
        await until_async(reported, "its sign of life, with the books")
        await until(lambda: env.desired("busy"), "the pod to be raised")
    finally:
        life.cancel()
        agent.terminate()
        code = await agent.wait()
    told = log.read_text()
    assert code == 0, told
    assert "forbidden" not in told
    first_lines.check(told, "market run")


def allocation(namespace: str, node: str | None, name: str) -> dict[str, Any]:
    spec = {"namespace": namespace, "podName": name, "desiredCPULimit": "100m"}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}


async def refusal(work: Any) -> str:
    with pytest.raises(ApiError) as refused:
        await work
    return str(refused.value)


async def test_an_agent_may_write_only_for_its_own_node(env, cluster, namespace, tmp_path):
    path = account(cluster, namespace, env.node, tmp_path)
    async with api_client.connect(config.load(path)) as agent:
        await _until_held(env, agent)
        mine = allocation(env.namespace, env.node, "mine")
        await agent.create(kinds.POD_ALLOCATIONS, mine, namespace=env.namespace)
        by_hand = allocation(env.namespace, None, "by-hand")
        await env.api.create(kinds.POD_ALLOCATIONS, by_hand, namespace=env.namespace)

        stolen = allocation(env.namespace, "another-node", "theirs")
        said = await refusal(agent.create(kinds.POD_ALLOCATIONS, stolen, namespace=env.namespace))
        assert f"the market agent of node {env.node} writes PodAllocations of that node alone" in said
        taken = {"spec": {"nodeName": env.node}}
        said = await refusal(agent.patch(kinds.POD_ALLOCATIONS, "by-hand", taken, namespace=env.namespace))
        assert "of that node alone" in said
        lease = {"metadata": {"name": "croupier-manager", "namespace": namespace}, "spec": {}}
        assert "its own Lease alone" in await refusal(agent.create(kinds.LEASES, lease))
        assert "forbidden" in await refusal(
            agent.delete(kinds.POD_ALLOCATIONS, "by-hand", namespace=env.namespace)
        )


async def _until_held(env: MarketEnv, agent: Client) -> None:
    """A new policy is enforced with a short delay."""

    async def held() -> bool:
        probe = allocation(env.namespace, "another-node", "probe")
        try:
            await agent.create(kinds.POD_ALLOCATIONS, probe, namespace=env.namespace, dry_run=True)
        except ApiError as error:
            return "of that node alone" in str(error)
        return False

    await until_async(held, "the policy to be in force")


def test_the_manifest_uses_valid_options():
    found = next(one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "DaemonSet")
    main = found["spec"]["template"]["spec"]["containers"][0]

    assert main["args"][:2] == ["market", "run"]
    assert json.dumps(main["env"]).count("NODE_NAME") == 1
    assert main["volumeMounts"][0]["readOnly"] is True
