"""Uninstalling: no finalizer blocks, objects of users stay, and running pods continue."""

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

from croupier.admission import configurations
from croupier.admission.configurations import ServiceTarget, WebhookConfigurationOptions
from croupier.api import crds, kinds, usage_records
from croupier.api.core_v1 import micro_time
from croupier.api.gpu.agent_report import FIELD_MANAGER
from croupier.api.gpu.pool import POOL_FINALIZER
from croupier.api.mps.reservation import RELEASE_FINALIZER
from croupier.core.pools.assignment import ASSIGNMENT
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.errors import NotFound
from croupier.ops.doctor_webhook import MUTATING, REGISTRATIONS, VALIDATING
from croupier_lab import shared_cluster
from croupier_lab.controlplane import COMPONENTS
from croupier_lab.lab import Lab
from tests.cli import env
from tests.cli.command import CROUPIER
from tests.cli.env import croupier
from tests.polling import until_async

ROOT = Path(__file__).resolve().parents[2]
OURS = "gpu-sharing"
"""Not the default namespace: the commands find it by the Deployment, and later by a Lease."""
NODE = "worker"
TAINT = {"key": "gpu", "value": "ours", "effect": "NoSchedule"}
THEIRS = {"key": "theirs", "value": "", "effect": "NoSchedule"}
PART_OF = {"app.kubernetes.io/part-of": "croupier"}


async def settle(api: Client, lab: Lab) -> None:
    """A cluster with all objects that must be removed, and objects of others that must stay."""
    lab.kubectl("create", "namespace", OURS)
    lab.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={OURS}", "--timeout=60s")
    lab.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    await _node(api)
    await api.create(kinds.DEPLOYMENTS, _deployment())
    await _lease(api, "croupier-scheduler", "the second scheduler")
    secret = {"name": "croupier-webhook-tls", "namespace": OURS}
    await api.create(kinds.SECRETS.raw, {"metadata": secret})
    await _failed_test(api)
    await _people(api)
    wish = WebhookConfigurationOptions(ServiceTarget(OURS), failure_policy="Ignore")
    for kind, body in zip((MUTATING, VALIDATING), configurations.documents(wish), strict=True):
        await api.create(REGISTRATIONS[kind], body)
    lab.kubectl("apply", "-f", str(ROOT / "deployments/pools/protect.yaml"))


async def _node(api: Client) -> None:
    await env.node(api, NODE, taints=[TAINT, THEIRS])
    words = {"gpu.deckhouse.io/pool-taints": "gpu=ours:NoSchedule", "kept": "by a person"}
    labels = {"pool.gpu.deckhouse.io/team-a": "", "by": "a-person"}
    await api.patch(kinds.NODES, NODE, {"metadata": {"annotations": words, "labels": labels}})
    agent = api.with_field_manager(FIELD_MANAGER)
    await agent.apply(
        kinds.NODES, {"metadata": {"name": NODE, "labels": {"nvidia.com/mig.config.state": "success"}}}
    )
    conditions = [{"type": "GPUResourcesServed", "status": "True", "reason": "Served", "message": "all"}]
    status = {"conditions": conditions}
    await agent.apply(
        kinds.NODES, {"metadata": {"name": NODE}, "status": status}, subresource="status", force=True
    )
    given = {"gpu.deckhouse.io/team-a": "2"}
    patch = {"status": {"capacity": given, "allocatable": given}}
    await agent.patch(kinds.NODES, NODE, patch, subresource="status")


def _deployment() -> dict[str, Any]:
    labels = {**PART_OF, "app": "gpupool-controller"}
    container = {"name": "main", "image": "any"}
    return {
        "metadata": {"name": "gpupool-controller", "namespace": OURS, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": "gpupool-controller"}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def _failed_test(api: Client) -> None:
    """The pod of `helm test`, which Helm keeps for its log; it has ended, so it does not block."""
    pod = env.pod(OURS, "croupier-doctor")
    pod["metadata"]["labels"] = {**PART_OF, "app": "croupier-doctor"}
    await api.create(kinds.PODS.raw, pod)
    failed = {"status": {"phase": "Failed"}}
    await api.patch(kinds.PODS, "croupier-doctor", failed, namespace=OURS, subresource="status")


async def _people(api: Client) -> None:
    """A pool that is being deleted, a pool that stays, a Reservation and a running pod."""
    for name in ("team-a", "team-b"):
        spec = {"provider": "Nvidia", "resource": {"unit": "Card"}, "allocation": {"mode": "Exclusive"}}
        meta = {"name": name, "finalizers": [POOL_FINALIZER]}
        await api.create(kinds.GPU_POOLS.raw, {"metadata": meta, "spec": spec})
    card = {"name": "card-0", "annotations": {ASSIGNMENT: "team-a"}}
    await api.create(kinds.GPU_DEVICES.raw, {"metadata": card})
    await api.delete(kinds.GPU_POOLS, "team-a")
    asked = {"podKey": "default/trainer", "nodeName": NODE, "numCards": 1, "percentPerCard": 50}
    meta = {"name": "held", "namespace": "default", "finalizers": [RELEASE_FINALIZER, "example.org/theirs"]}
    await api.create(kinds.RESERVATIONS.raw, {"metadata": meta, "spec": asked})
    maps = {"name": "gpupool-team-b", "namespace": OURS, "labels": {"gpu.deckhouse.io/pool": "team-b"}}
    await api.create(kinds.CONFIG_MAPS.raw, {"metadata": maps})
    await api.create(kinds.CONFIG_MAPS.raw, {"metadata": {"name": usage_records.ACCOUNT, "namespace": OURS}})
    pod = env.pod("default", "trainer")
    pod["spec"] |= {"nodeName": NODE, "tolerations": [{"operator": "Exists"}]}
    await api.create(kinds.PODS.raw, pod)


async def hold(api: Client, holder: str) -> None:
    """The Lease of a manager, renewed just now if it has a holder."""
    await _lease(api, "croupier-pools", holder)


async def _lease(api: Client, name: str, holder: str) -> None:
    spec = {"holderIdentity": holder, "renewTime": micro_time(SystemClock().now())}
    body = {"metadata": {"name": name, "namespace": OURS}, "spec": spec}
    await api.apply(kinds.LEASES.raw, body, force=True)


async def _works(api: Client, holder: str) -> None:
    while True:
        await hold(api, holder)
        await asyncio.sleep(1)


async def is_gone(api: Client, kind: Any, name: str, namespace: str | None = None) -> bool:
    try:
        await api.get(kind, name, namespace=namespace)
    except NotFound:
        return True
    return False


async def test_everything_is_removed_in_order_and_user_objects_stay(private_lab):
    lab = await private_lab(parts=COMPONENTS)
    shared_cluster.install(lab.cluster, crds.definitions())
    async with api_client.connect(config.load(lab.kubeconfig), field_manager="test") as api:
        await settle(api, lab)
        await _check_lists_what_waits(lab)
        await _nothing_is_removed_without_an_answer(api, lab)
        await _nothing_is_taken_from_under_a_process(api, lab)
        await hold(api, "")
        done = croupier("uninstall", "--yes", kubeconfig=lab.kubeconfig)
        assert done.code == 0, done.err
        _report_says_what_was_removed(done.out)
        await _ours_is_gone(api)
        await _theirs_stays(api)

        again = croupier("uninstall", kubeconfig=lab.kubeconfig)
        assert (again.code, again.out) == (0, "Nothing to remove except the CRDs and their objects.\n")
        assert croupier("uninstall", "--check", kubeconfig=lab.kubeconfig).code == 0

        await _with_kinds(api, lab)


async def _check_lists_what_waits(lab: Lab) -> None:
    checked = croupier("uninstall", "--check", "-o", "json", kubeconfig=lab.kubeconfig)
    assert checked.code == 1
    blocking = {(remnant["kind"], remnant["name"]) for remnant in checked.data["goes"] if remnant["blocks"]}
    assert blocking >= {
        (MUTATING, "croupier-webhook"),
        ("ValidatingAdmissionPolicyBinding", "croupier-protect-cards"),
        ("GPUPool", "team-a"),
        ("GPUPool", "team-b"),
        ("Reservation", "default/held"),
        ("Node", NODE),
    }
    stays = {remnant["name"]: remnant["what"] for remnant in checked.data["stays"]}
    assert stays["gpupools.gpu.deckhouse.io"] == "2 objects"
    stages = [remnant["stage"] for remnant in checked.data["goes"]]
    assert stages.index("webhook") < stages.index("process") < stages.index("pool") < stages.index("node")


async def _nothing_is_taken_from_under_a_process(api: Client, lab: Lab) -> None:
    working = asyncio.create_task(_works(api, "manager-elsewhere"))
    refused = await asyncio.to_thread(
        croupier, "uninstall", "--yes", "--wait", "1", kubeconfig=lab.kubeconfig
    )
    working.cancel()
    await asyncio.wait({working})
    assert refused.code == 1
    assert "manager-elsewhere (Lease croupier-pools) is still running" in refused.err
    pool = await api.get(kinds.GPU_POOLS, "team-b")
    assert pool.metadata.finalizers == (POOL_FINALIZER,)


async def _nothing_is_removed_without_an_answer(api: Client, lab: Lab) -> None:
    """`echo n | croupier uninstall` is no yes; at a terminal the cluster and every object are named first."""
    command = [*CROUPIER, "uninstall", "--with-crds", f"--kubeconfig={lab.kubeconfig}"]
    piped = await asyncio.to_thread(_piped, command, "n\n")
    assert piped.returncode == 2
    assert "there is no terminal to ask at: pass --yes to do it" in piped.stderr
    code, shown = await asyncio.to_thread(env.at_a_terminal, command, answer="n")
    assert code == 1
    assert lab.server in shown
    deleted, _, kept = shown.partition("Stay, but lose a finalizer or marks:")
    assert "Deployment gpupool-controller" in deleted
    assert "CRD gpupools.gpu.deckhouse.io: 2 objects" in deleted
    assert "GPUPool team-b: the finalizer" in kept
    assert f"Node {NODE}: labels" in kept
    assert not await is_gone(api, kinds.DEPLOYMENTS, "gpupool-controller", OURS)
    assert not await is_gone(api, kinds.GPU_POOLS, "team-b")


def _piped(command: list[str], answer: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=answer, capture_output=True, text=True, timeout=60, check=False)


def _report_says_what_was_removed(printed: str) -> None:
    assert f"deleted ConfigMap {OURS}/gpupool-team-b" in printed
    assert f"deleted ConfigMap {OURS}/{usage_records.ACCOUNT}" in printed
    assert "removed the finalizer from GPUPool team-b" in printed
    assert re.search(rf"removed labels? .* from Node {NODE}", printed)


async def _ours_is_gone(api: Client) -> None:
    for kind in REGISTRATIONS.values():
        assert await is_gone(api, kind, configurations.NAME)
    for kind in (kinds.ADMISSION_POLICIES, kinds.ADMISSION_POLICY_BINDINGS):
        names = [item["metadata"]["name"] for item in (await api.list(kind)).items]
        assert not [name for name in names if name.startswith("croupier-")]
    assert await is_gone(api, kinds.DEPLOYMENTS, "gpupool-controller", OURS)
    assert await is_gone(api, kinds.PODS, "croupier-doctor", OURS)
    assert await is_gone(api, kinds.GPU_POOLS, "team-a"), "its deletion ended"
    assert await is_gone(api, kinds.CONFIG_MAPS, "gpupool-team-b", OURS)
    for name in ("croupier-pools", "croupier-scheduler"):
        assert await is_gone(api, kinds.LEASES, name, OURS)
    assert await is_gone(api, kinds.SECRETS, "croupier-webhook-tls", OURS)
    card = await api.get(kinds.GPU_DEVICES, "card-0")
    assert ASSIGNMENT not in card.metadata.annotations


async def _theirs_stays(api: Client) -> None:
    node = await api.get(kinds.NODES, NODE)
    assert node.metadata.labels["by"] == "a-person"
    assert not [
        key for key in node.metadata.labels if key.startswith(("pool.gpu", "nvidia.com/mig.config.state"))
    ]
    assert "gpu.deckhouse.io/pool-taints" not in node.metadata.annotations
    assert node.metadata.annotations["kept"] == "by a person"
    taints = {taint.key for taint in node.spec.taints}
    assert "theirs" in taints
    assert "gpu" not in taints
    assert "GPUResourcesServed" not in {condition.type for condition in node.status.conditions}
    assert "gpu.deckhouse.io/team-a" not in node.status.capacity
    assert "nvidia.com/gpu" in node.status.capacity
    pool, held = (
        await api.get(kinds.GPU_POOLS, "team-b"),
        await api.get(kinds.RESERVATIONS, "held", namespace="default"),
    )
    assert pool.metadata.finalizers == ()
    assert held.metadata.finalizers == ("example.org/theirs",)
    pod = await api.get(kinds.PODS, "trainer", namespace="default")
    assert pod.metadata.deletion_timestamp is None


async def _with_kinds(api: Client, lab: Lab) -> None:
    await api.patch(kinds.RESERVATIONS, "held", {"metadata": {"finalizers": []}}, namespace="default")
    shown = croupier("uninstall", "--with-crds", "--dry-run", kubeconfig=lab.kubeconfig)
    assert "CRD gpupools.gpu.deckhouse.io" in shown.out
    assert not await is_gone(api, kinds.GPU_POOLS, "team-b")

    done = croupier("uninstall", "--with-crds", "--yes", kubeconfig=lab.kubeconfig)
    assert done.code == 0, done.err
    await until_async(lambda: is_gone(api, kinds.GPU_POOLS, "team-b"), "the kind to go", 60)
    assert croupier("uninstall", kubeconfig=lab.kubeconfig).out == "Nothing to remove.\n"


def test_the_wait_must_be_positive():
    assert croupier("uninstall", "--wait", "0").code == 2
