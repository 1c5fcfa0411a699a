"""`croupier doctor` on a real API server: problems are found and reported with a remedy."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
import yaml

from croupier.admission import configurations
from croupier.api import kinds
from croupier.api.core_v1 import micro_time
from croupier.api.gpu import agent_report
from croupier.core.pods.device_variables import ACCEPTS_LABEL, RUNTIME_LABEL
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import ApiError, NotFound
from croupier.ops import doctor
from croupier.ops.doctor_webhook import MUTATING, REGISTRATIONS, VALIDATING
from tests.admission.webhook_env import free_ports
from tests.cli import env
from tests.cli.command import CROUPIER
from tests.cli.env import CommandResult, croupier
from tests.polling import until_async

pytestmark = pytest.mark.usefixtures("clean_cluster")


def findings(answer: CommandResult) -> set[tuple[str, str, str]]:
    return {(item["check"], item["severity"], item["where"]) for item in answer.data["findings"]}


def messages(answer: CommandResult, where: str) -> str:
    return " ".join(item["what"] for item in answer.data["findings"] if item["where"] == where)


@pytest_asyncio.fixture
async def troubled(api: Client, namespace: str) -> AsyncIterator[str]:
    """A cluster with one problem of each kind; yields the name of its node."""
    node = f"{namespace}-node"
    await env.node(api, node)
    exposed = {RUNTIME_LABEL: "nvidia", ACCEPTS_LABEL: "all"}
    await api.patch(kinds.NODES, node, {"metadata": {"labels": exposed}})
    await _card(api, node, pool="team-a")
    await _agent(api, namespace, node, silent_for=600)
    await _pool(api, "team-a")
    await api.create(kinds.CONFIG_MAPS.raw, _settings(namespace, "logLevel: Loud"))
    await api.create(
        kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "croupier-market", "namespace": namespace}}
    )
    bound = env.pod(namespace, "past-the-ledger")
    bound["spec"]["nodeName"] = node
    await api.create(kinds.PODS.raw, bound)
    await env.ledger(api, node, {"deleted/gone/uid": 50})
    yield node
    await api.delete(kinds.PODS, "past-the-ledger", namespace=namespace)


async def _card(api: Client, node: str, pool: str) -> None:
    name = f"{node}-card"
    await api.create(kinds.GPU_DEVICES.raw, {"metadata": {"name": name}})
    status = {
        "nodeName": node,
        "managed": True,
        "phase": "Assigned",
        "state": "Assigned",
        "poolRef": {"name": pool},
    }
    await api.patch(kinds.GPU_DEVICES.raw, name, {"status": status}, subresource="status")


async def _agent(api: Client, namespace: str, node: str, silent_for: float) -> None:
    key, _, value = agent_report.LEASE_SELECTOR.partition("=")
    meta = {
        "name": "agent",
        "namespace": namespace,
        "labels": {key: value},
        "annotations": {agent_report.NODE_ANNOTATION: node},
    }
    seen = micro_time(datetime.now(UTC) - timedelta(seconds=silent_for))
    await api.create(
        kinds.LEASES.raw, {"metadata": meta, "spec": {"holderIdentity": node, "renewTime": seen}}
    )


async def _pool(api: Client, name: str) -> None:
    spec = {"provider": "Nvidia", "resource": {"unit": "Card"}, "allocation": {"mode": "Exclusive"}}
    await api.create(kinds.GPU_POOLS.raw, {"metadata": {"name": name}, "spec": spec})
    condition = {
        "type": "Misconfigured",
        "status": "True",
        "reason": "Drift",
        "message": "a card was repartitioned by another program",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await api.patch(kinds.GPU_POOLS.raw, name, {"status": {"conditions": [condition]}}, subresource="status")


def _settings(namespace: str, text: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "croupier-settings", "namespace": namespace},
        "data": {"settings.yaml": text},
    }


async def test_each_problem_is_found_with_a_remedy(cluster, namespace, troubled):
    answer = croupier("doctor", "-n", namespace, "-o", "json", kubeconfig=cluster.kubeconfig)

    assert answer.code == 1
    assert answer.data["checks"] == list(doctor.CHECKS)
    expected = {
        ("processes", "error", f"namespace {namespace}"),
        ("settings", "error", f"ConfigMap {namespace}/croupier-settings"),
        ("rbac", "error", "ServiceAccount croupier-market"),
        ("webhook", "error", f"{MUTATING} croupier-webhook"),
        ("scheduler", "error", f"pods {namespace}/past-the-ledger"),
        ("agents", "error", f"node {troubled}"),
        ("plugins", "error", f"node {troubled}"),
        ("guard", "warning", f"node {troubled}"),
        ("pools", "error", "GPUPool team-a"),
        ("ledger", "warning", f"node {troubled}"),
    }
    assert expected <= findings(answer), json.dumps(answer.data, indent=1)
    assert not {finding for finding in findings(answer) if finding[0] in ("crds", "versions")}
    assert all(item["whatToDo"] for item in answer.data["findings"])
    assert "gpu.deckhouse.io/team-a" in messages(answer, f"node {troubled}")
    assert "patch podallocations.allocation.mbcas.io" in messages(answer, "ServiceAccount croupier-market")


async def test_selected_checks_and_no_findings(cluster, namespace, crds):
    healthy = croupier("doctor", "--only", "crds", "--only", "versions", kubeconfig=cluster.kubeconfig)
    assert (healthy.code, healthy.out) == (0, "No findings: versions, crds.\n")

    failing = croupier("doctor", "-n", namespace, "--only", "processes", kubeconfig=cluster.kubeconfig)
    assert failing.code == 1
    assert failing.out.splitlines()[0].split()[:3] == ["CHECK", "SEVERITY", "WHERE"]


def test_an_unknown_check_is_rejected():
    answer = croupier("doctor", "--only", "everything")
    assert answer.code == 2
    assert "choose from versions, crds," in answer.err


def test_an_unreachable_cluster_is_reported_in_one_sentence(cluster, tmp_path):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for entry in config["clusters"]:
        entry["cluster"]["server"] = "https://127.0.0.1:9"
    unreachable = tmp_path / "kubeconfig"
    unreachable.write_text(yaml.safe_dump(config))
    answer = croupier("doctor", kubeconfig=unreachable)
    assert (answer.code, answer.out) == (1, "")
    assert len(answer.err.splitlines()) == 1


async def test_a_page_that_may_write_is_found(api, cluster, namespace):
    """The account of the page reads; a right to write was granted by mistake."""
    command = ("doctor", "-n", namespace, "--only", "rbac", "-o", "json")
    account = f"{namespace}:croupier-ui"
    cluster.kubectl("create", "serviceaccount", "croupier-ui", "-n", namespace)
    before = croupier(*command, kubeconfig=cluster.kubeconfig)
    cluster.kubectl("create", "role", "oops", "--verb=get,patch", "--resource=pods", "-n", namespace)
    cluster.kubectl(
        "create", "rolebinding", "oops", "--role=oops", f"--serviceaccount={account}", "-n", namespace
    )
    after = croupier(*command, kubeconfig=cluster.kubeconfig)

    where = "ServiceAccount croupier-ui"
    assert "must not write" not in messages(before, where)
    assert "it may not list, watch gpudevices.gpu.deckhouse.io" in messages(before, where)
    assert f"it may patch pods in {namespace}, but it must not write" in messages(after, where)
    assert 'RoleBinding "oops' in messages(after, where)


async def test_an_unavailable_webhook_is_found(api, cluster, namespace):
    port, health = free_ports(2)
    webhook = await asyncio.create_subprocess_exec(
        *CROUPIER,
        *("webhook", f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}", "--log-level=warning"),
        *(f"--listen=127.0.0.1:{port}", f"--url=https://127.0.0.1:{port}", f"--health=127.0.0.1:{health}"),
        *("--failure-policy=Fail", "--drain=0"),
    )
    command = ("doctor", "-n", namespace, "--only", "webhook", "-o", "json")
    try:
        await until_async(lambda: _webhook_marks_pods(api), "the webhook to answer", 60)
        healthy = croupier(*command, kubeconfig=cluster.kubeconfig)
        assert not [finding for finding in findings(healthy) if finding[1] == "error"], healthy.out

        webhook.terminate()
        await webhook.wait()
        failing = croupier(*command, kubeconfig=cluster.kubeconfig)
        assert ("webhook", "error", "croupier webhook") in findings(failing)
        assert "the API server cannot call it" in messages(failing, "croupier webhook")
    finally:
        if webhook.returncode is None:
            webhook.kill()
            await webhook.wait()
        for kind in (MUTATING, VALIDATING):
            with contextlib.suppress(NotFound):
                await api.delete(REGISTRATIONS[kind], configurations.NAME)


async def _webhook_marks_pods(api: Client) -> bool:
    """Whether the webhook marks a pod that requests cards."""
    pod = env.pod("default", marked=False, gpus=1)
    try:
        made = await api.create(kinds.PODS.raw, pod, dry_run=True)
    except ApiError:
        return False
    return "gpu.mps.io/ledger" in made["spec"]["containers"][0]["resources"]["requests"]
