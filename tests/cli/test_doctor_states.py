"""`croupier doctor` reports what is wrong and nothing else: a new cluster, and what changes leave behind.

The API server has no controllers here, so that each state can be written as controllers leave it.
"""

import asyncio
import os
import shlex
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest_asyncio

from croupier.api import kinds, market_report
from croupier.api.core_v1 import micro_time
from croupier.api.meta import PART_OF_SELECTOR
from croupier.capacity import exclusion
from croupier.core.installation.diagnosis_processes import IN_REPOSITORY
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, PatchType, Selection
from croupier.ops.installation import ELECTIONS
from croupier_lab.lab import Lab
from croupier_lab.pytest_plugin import PrivateLab
from tests.cli import env, verbs
from tests.install import rendering

SECONDS = 20
HERE = Selection(DEFAULT_NAMESPACE, labels=PART_OF_SELECTOR)
CHECKS = ("versions", "crds", "processes", "rbac", "scheduler", "agents", "ledger")
"""Without the webhook, which does not run here."""
NODE = "node-1"


async def findings(lab: Lab, *checks: str) -> set[tuple[str, str, str]]:
    chosen = [f"--only={check}" for check in checks or CHECKS]
    command = ("doctor", "-o", "json", "--kubeconfig", str(lab.kubeconfig), *chosen)
    ended = await asyncio.to_thread(verbs.call, *command)
    return {(item["severity"], item["where"], item["what"]) for item in ended.data["findings"]}


@pytest_asyncio.fixture
async def bare(private_lab: PrivateLab) -> Lab:
    """A cluster that has never seen Croupier."""
    return await private_lab()


@pytest_asyncio.fixture
async def api(bare: Lab) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(bare.kubeconfig), field_manager="test") as connected:
        yield connected


async def test_after_installation_switches_and_rollbacks(bare, api):
    """One installation, from the command that doctor prints to its rollback."""
    await _install_as_printed(bare)
    await _everything_runs(api)
    assert await findings(bare) == set()

    await _a_rollout(bare, api)
    await _a_rollout_of_agents(bare, api)
    await _in_memory_to_crd(bare, api)
    await _market_off(bare, api)
    await _rollback(bare, api)


async def _install_as_printed(lab: Lab) -> None:
    ended = await asyncio.to_thread(verbs.call, "doctor", "-o", "json", "--kubeconfig", str(lab.kubeconfig))
    [finding] = ended.data["findings"]
    assert (ended.code, finding["what"]) == (1, "Croupier is not installed")

    command = shlex.split(finding["whatToDo"].removeprefix(IN_REPOSITORY))
    paths = {"PATH": f"{rendering.helm().parent}{os.pathsep}{os.environ['PATH']}"}
    await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **paths, "KUBECONFIG": str(lab.kubeconfig)},
        check=True,
        timeout=120,
        capture_output=True,
    )
    started = await findings(lab, "processes")
    assert {(severity, what) for severity, _, what in started} <= {
        ("note", "it is starting: 0 of 1 are ready"),
        ("note", "it is starting: 0 of 2 are ready"),
    }
    assert started


async def _everything_runs(api: Client) -> None:
    for deployment in (await api.list(kinds.DEPLOYMENTS, HERE)).items:
        await _status(api, deployment, ready=deployment["spec"]["replicas"], reason="NewReplicaSetAvailable")
        if lease := ELECTIONS.get(deployment["metadata"]["name"]):
            await _lease(api, lease, age=1)


async def _status(
    api: Client, deployment: dict[str, Any], *, ready: int, reason: str, updated: int | None = None
) -> None:
    wanted = deployment["spec"]["replicas"]
    condition = {"type": "Progressing", "status": "True", "reason": reason, "message": ""}
    status = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": wanted,
        "updatedReplicas": wanted if updated is None else updated,
        "readyReplicas": ready,
        "conditions": [condition],
    }
    await api.patch(
        kinds.DEPLOYMENTS,
        deployment["metadata"]["name"],
        {"status": status},
        namespace=DEFAULT_NAMESPACE,
        subresource="status",
    )


async def _lease(api: Client, name: str, age: float, **metadata: Any) -> None:
    renewed = micro_time(datetime.now(UTC) - timedelta(seconds=age))
    body = {
        "metadata": {"name": name, "namespace": DEFAULT_NAMESPACE, **metadata},
        "spec": {"holderIdentity": f"{name}-holder", "renewTime": renewed, "leaseDurationSeconds": 15},
    }
    await api.apply(kinds.LEASES, body, namespace=DEFAULT_NAMESPACE, force=True)


async def _a_rollout(lab: Lab, api: Client) -> None:
    """The webhook has two replicas, of which one is updated and not ready."""
    name = "gpu-admission-webhook"
    deployment = await api.patch(
        kinds.DEPLOYMENTS, name, {"spec": {"replicas": 2}}, namespace=DEFAULT_NAMESPACE
    )
    assert await findings(lab) == set()  # the controller has not observed the change yet
    await _status(api, deployment, ready=1, updated=1, reason="ReplicaSetUpdated")
    assert await findings(lab) == set()

    await _status(api, deployment, ready=1, updated=1, reason="ProgressDeadlineExceeded")
    assert await findings(lab) == {("warning", f"deployment/{name}", "1 of 2 are ready")}
    await _status(api, deployment, ready=2, reason="NewReplicaSetAvailable")


async def _a_rollout_of_agents(lab: Lab, api: Client) -> None:
    """One agent's pod is being replaced, then another one is missing."""
    account = {"metadata": {"name": "default", "namespace": DEFAULT_NAMESPACE}}
    await api.create(kinds.SERVICE_ACCOUNTS, account)  # pods need it, and no controller creates it here
    agents = await api.get(kinds.DAEMON_SETS, "croupier-node", namespace=DEFAULT_NAMESPACE)
    await _pod(api, agents, "croupier-node-1")
    await _set_status(api, agents, wanted=2, ready=1)
    assert await findings(lab) == set()

    await _set_status(api, agents, wanted=3, ready=1)
    assert await findings(lab) == {("warning", "daemonset/croupier-node", "1 of 3 are ready")}
    await _set_status(api, agents, wanted=1, ready=1)


async def _pod(api: Client, owner: dict[str, Any], name: str) -> None:
    reference = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    pod = {
        "metadata": {"name": name, "namespace": DEFAULT_NAMESPACE, "ownerReferences": [reference]},
        "spec": {"nodeName": NODE, "containers": [{"name": "agent", "image": "any"}]},
    }
    await api.create(kinds.PODS.raw, pod)


async def _set_status(api: Client, daemon_set: dict[str, Any], *, wanted: int, ready: int) -> None:
    status = {
        "observedGeneration": daemon_set["metadata"]["generation"],
        "currentNumberScheduled": wanted,
        "desiredNumberScheduled": wanted,
        "numberMisscheduled": 0,
        "numberReady": ready,
    }
    await api.patch(
        kinds.DAEMON_SETS,
        daemon_set["metadata"]["name"],
        {"status": status},
        namespace=DEFAULT_NAMESPACE,
        subresource="status",
    )


async def _in_memory_to_crd(lab: Lab, api: Client) -> None:
    """The extender that kept the ledger in memory was killed; NodeReservations exist since."""
    in_memory, stored = exclusion.LEASE_OF["InMemory"], exclusion.LEASE_OF["CRD"]
    await _lease(api, in_memory, age=3600)
    assert {where for _, where, _ in await findings(lab)} == {f"Lease {DEFAULT_NAMESPACE}/{in_memory}"}

    await _lease(api, stored, age=2)
    assert await findings(lab) == set()
    await _lease(api, in_memory, age=20)  # seconds after the switch
    await env.ledger(api, "node-9", {})
    assert ("error", "ledger") not in {finding[:2] for finding in await findings(lab, "scheduler")}


async def _market_off(lab: Lab, api: Client) -> None:
    """The Lease of the market agent stays when its DaemonSet is gone."""
    await env.node(api, NODE)
    key = market_report.AGENT_LABEL
    metadata = {
        "labels": {key: market_report.ACTIVE},
        "annotations": {market_report.NODE_ANNOTATION: NODE},
    }
    await _lease(api, f"market-{NODE}", age=600, **metadata)
    market = await api.get(kinds.DAEMON_SETS, "croupier-market", namespace=DEFAULT_NAMESPACE)
    assert await findings(lab, "agents") == set()  # it has no pod on the node
    await _pod(api, market, "croupier-market-1")
    assert {finding[:2] for finding in await findings(lab, "agents")} == {("warning", f"node {NODE}")}

    await api.delete(kinds.DAEMON_SETS, "croupier-market", namespace=DEFAULT_NAMESPACE)
    assert await findings(lab, "agents") == set()


async def _rollback(lab: Lab, api: Client) -> None:
    """All processes have an older image, and the CRDs and rights of that version."""
    for kind in (kinds.DEPLOYMENTS, kinds.DAEMON_SETS):
        for workload in (await api.list(kind, HERE)).items:
            containers = workload["spec"]["template"]["spec"]["containers"]
            patch = [
                {"op": "replace", "path": f"/spec/template/spec/containers/{place}/image", "value": "c:0.0.1"}
                for place in range(len(containers))
            ]
            name = workload["metadata"]["name"]
            await api.patch(kind, name, patch, namespace=DEFAULT_NAMESPACE, patch_type=PatchType.JSON)
    await _everything_runs(api)
    name = "reservations.mps.nvidia.com"
    await api.patch(kinds.CUSTOM_RESOURCE_DEFINITIONS, name, {"spec": {"names": {"shortNames": ["old"]}}})
    assert {severity for severity, _, _ in await findings(lab, "versions", "crds", "rbac")} == {"note"}
