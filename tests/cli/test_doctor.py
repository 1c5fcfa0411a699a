"""`croupier doctor` on a real API server: what is wrong is found, and said with what to do about it."""

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
from croupier.kube.client import Client
from croupier.kube.errors import ApiError, NotFound
from croupier.wiring import doctor, doctor_rights
from croupier.wiring.doctor_webhook import MUTATING, REGISTRATIONS, VALIDATING
from tests.admission.desk import free_ports
from tests.cli import asking
from tests.cli.asking import Answer, croupier
from tests.cli.command import CROUPIER
from tests.kube.waiting import until_async

pytestmark = pytest.mark.usefixtures("clean_cluster")


def findings(answer: Answer) -> set[tuple[str, str, str]]:
    return {(one["check"], one["severity"], one["where"]) for one in answer.data["findings"]}


def said(answer: Answer, where: str) -> str:
    return " ".join(one["what"] for one in answer.data["findings"] if one["where"] == where)


@pytest_asyncio.fixture
async def troubled(api: Client, namespace: str) -> AsyncIterator[str]:
    """A cluster with one of each trouble; the name of its node."""
    node = f"{namespace}-node"
    await asking.node(api, node)
    await _card(api, node, pool="team-a")
    await _agent(api, namespace, node, silent_for=600)
    await _pool(api, "team-a")
    await api.create(kinds.CONFIG_MAPS.raw, _settings(namespace, "logLevel: Loud"))
    await api.create(
        doctor_rights.ACCOUNTS, {"metadata": {"name": "croupier-market", "namespace": namespace}}
    )
    bound = asking.pod(namespace, "past-the-ledger")
    bound["spec"]["nodeName"] = node
    await api.create(kinds.PODS.raw, bound)
    await asking.ledger(api, node, {"nobody/gone/uid": 50})
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
    key, _, value = agent_report.LEASES.partition("=")
    meta = {
        "name": "agent",
        "namespace": namespace,
        "labels": {key: value},
        "annotations": {agent_report.NODE: node},
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
        "message": "a card was cut by somebody else",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await api.patch(kinds.GPU_POOLS.raw, name, {"status": {"conditions": [condition]}}, subresource="status")


def _settings(namespace: str, text: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "croupier-settings", "namespace": namespace},
        "data": {"settings.yaml": text},
    }


async def test_each_trouble_is_found_with_what_to_do(cluster, namespace, troubled):
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
        ("pools", "error", "GPUPool team-a"),
        ("ledger", "warning", f"node {troubled}"),
    }
    assert expected <= findings(answer), json.dumps(answer.data, indent=1)
    assert not {one for one in findings(answer) if one[0] in ("crds", "versions")}
    assert all(one["whatToDo"] for one in answer.data["findings"])
    assert "gpu.deckhouse.io/team-a" in said(answer, f"node {troubled}")
    assert "patch podallocations.allocation.mbcas.io" in said(answer, "ServiceAccount croupier-market")


async def test_one_check_alone_and_a_clean_bill(cluster, namespace, crds):
    well = croupier("doctor", "--only", "crds", "--only", "versions", kubeconfig=cluster.kubeconfig)
    assert (well.code, well.out) == (0, "Nothing to complain of: versions, crds.\n")

    ill = croupier("doctor", "-n", namespace, "--only", "processes", kubeconfig=cluster.kubeconfig)
    assert ill.code == 1
    assert ill.out.splitlines()[0].split()[:3] == ["CHECK", "SEVERITY", "WHERE"]


def test_what_cannot_be_meant():
    answer = croupier("doctor", "--only", "everything")
    assert answer.code == 2
    assert "choose from versions, crds," in answer.err


def test_a_cluster_that_does_not_answer_is_one_sentence(cluster, tmp_path):
    said = yaml.safe_load(cluster.kubeconfig.read_text())
    for one in said["clusters"]:
        one["cluster"]["server"] = "https://127.0.0.1:9"
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(yaml.safe_dump(said))
    answer = croupier("doctor", kubeconfig=nowhere)
    assert (answer.code, answer.out) == (1, "")
    assert len(answer.err.splitlines()) == 1


async def test_a_webhook_that_answers_is_told_from_one_that_does_not(api, cluster, namespace):
    port, health = free_ports(2)
    webhook = await asyncio.create_subprocess_exec(
        *CROUPIER,
        *("webhook", f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}", "--log-level=warning"),
        *(f"--listen=127.0.0.1:{port}", f"--url=https://127.0.0.1:{port}", f"--health=127.0.0.1:{health}"),
        *("--failure-policy=Fail", "--drain=0"),
    )
    look = ("doctor", "-n", namespace, "--only", "webhook", "-o", "json")
    try:
        await until_async(lambda: _asked(api), "the webhook to answer", 60)
        well = croupier(*look, kubeconfig=cluster.kubeconfig)
        assert not [one for one in findings(well) if one[1] == "error"], well.out

        webhook.terminate()
        await webhook.wait()
        ill = croupier(*look, kubeconfig=cluster.kubeconfig)
        assert ("webhook", "error", "croupier webhook") in findings(ill)
        assert "the API server cannot call it" in said(ill, "croupier webhook")
    finally:
        if webhook.returncode is None:
            webhook.kill()
            await webhook.wait()
        for kind in (MUTATING, VALIDATING):
            with contextlib.suppress(NotFound):
                await api.delete(REGISTRATIONS[kind], configurations.NAME)


async def _asked(api: Client) -> bool:
    """Whether a pod that asks for cards is marked."""
    pod = asking.pod("default", marked=False, gpus=1)
    try:
        made = await api.create(kinds.PODS.raw, pod, dry_run=True)
    except ApiError:
        return False
    return "gpu.mps.io/ledger" in made["spec"]["containers"][0]["resources"]["requests"]
