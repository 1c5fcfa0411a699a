"""deployments/mps-dra: valid manifests, minimal permissions, and enforced policies."""

import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import Forbidden, Invalid
from croupier_lab.lab import Lab
from tests.cli import command
from tests.controllers import reservation_env as reservation_envs
from tests.deployments.manifests import documents
from tests.polling import until_async

SECONDS = 30

FOLDER = Path(__file__).resolve().parents[2] / "deployments/mps-dra"
ALLOCATION = "gpu.mps.io/allocation"


@pytest_asyncio.fixture
async def installed(private_lab: Any) -> AsyncIterator[tuple[Lab, Client]]:
    """A private lab, because the policy applies to all pods."""
    lab = await private_lab()
    # Caches of the tests never sync without the kinds of cards and pools, which the controllers read, too.
    for folder in (FOLDER.parents[1] / "config/crd", FOLDER.parent / "namespace", FOLDER):
        lab.kubectl("apply", "-k", str(folder))
    lab.kubectl("wait", "--for=condition=Established", "crd", "--all")
    lab.kubectl("create", "serviceaccount", "default")  # there is no controller manager
    async with api_client.connect(config.load(lab.kubeconfig)) as api:
        yield lab, api


def acting_as(lab: Lab, account: str) -> Any:
    user = f"system:serviceaccount:d8-gpu-operator:{account}"
    groups = ("system:serviceaccounts", "system:serviceaccounts:d8-gpu-operator", "system:authenticated")
    headers = {"Impersonate-User": (user,), "Impersonate-Group": groups}
    return api_client.connect(replace(config.load(lab.kubeconfig), impersonate=headers))


def pod(name: str, **annotations: str) -> dict[str, Any]:
    spec = {"schedulerName": "no-such-scheduler", "containers": [{"name": "main", "image": "none"}]}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


def test_every_process_accepts_its_arguments():
    deployments = [item for item in documents(FOLDER) if item["kind"] == "Deployment"]
    assert {item["metadata"]["name"] for item in deployments} == {"croupier-manager", "croupier-extender"}
    for item in deployments:
        (container,) = item["spec"]["template"]["spec"]["containers"]
        help_of = command.run([*container["args"], "--help"], env=os.environ)
        assert help_of.code == 0, help_of.err
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for name, option in {"health": "--health", "extender": "--listen"}.items():
            assert name not in ports or f"{option}=:{ports[name]}" in container["args"]


def test_no_wildcards_and_the_verbs_of_the_ledger():
    roles = [item for item in documents(FOLDER) if item["kind"] in ("Role", "ClusterRole")]
    rules = [rule for role in roles for rule in role["rules"]]

    assert "*" not in json.dumps(rules)
    ledger = [rule for rule in rules if "reservations" in rule["resources"]]
    assert [(rule["resources"], rule["verbs"]) for rule in ledger] == [
        (
            ["reservations", "nodereservations"],
            ["get", "list", "watch", "create", "update", "patch", "delete"],
        )
    ]


def test_processes_are_restricted():
    deployments = [item for item in documents(FOLDER) if item["kind"] == "Deployment"]
    assert deployments
    for item in deployments:
        spec = item["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["image"] == "croupier:latest"
        assert {"livenessProbe", "readinessProbe"} <= container.keys()
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


async def test_applying_twice_changes_nothing(installed):
    lab, _ = installed
    again = lab.kubectl("apply", "-k", str(FOLDER), "--dry-run=server").stdout.splitlines()

    assert again
    assert [line for line in again if not line.split(" (")[0].endswith("unchanged")] == []


async def test_only_a_binding_sets_the_allocation(installed):
    _, api = installed

    async def refused() -> bool:
        """Retried, because the policy takes effect with a delay."""
        forged = pod("forged", **{ALLOCATION: "[]"})
        try:
            await api.create(kinds.PODS, forged, namespace="default", dry_run=True)
        except (Forbidden, Invalid) as error:
            return "the scheduler writes it when it binds the pod" in str(error)
        return False

    await until_async(refused, "the policy")
    await api.create(kinds.NODES, {"metadata": {"name": "node-1"}})
    made = await api.create(kinds.PODS, pod("valid", note="mine"), namespace="default")
    forged = {"metadata": {"annotations": {ALLOCATION: "[]"}}}
    with pytest.raises((Forbidden, Invalid), match="cannot be changed"):
        await api.patch(kinds.PODS, "valid", forged, namespace="default")

    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "valid", "uid": made.metadata.uid, "annotations": {ALLOCATION: "[1]"}},
        "target": {"kind": "Node", "name": "node-1"},
    }
    await api.create(kinds.PODS, binding, namespace="default", name="valid", subresource="binding")
    bound = await api.get(kinds.PODS, "valid", namespace="default")
    assert (bound.spec.node_name, bound.metadata.annotations[ALLOCATION]) == ("node-1", "[1]")
    await api.patch(kinds.PODS, "valid", {"metadata": {"annotations": {"note": "new"}}}, namespace="default")
    gone = {"metadata": {"annotations": {ALLOCATION: None}}}
    with pytest.raises((Forbidden, Invalid), match="cannot be changed"):
        await api.patch(kinds.PODS, "valid", gone, namespace="default")


async def test_permissions_of_the_manager(installed):
    lab, api = installed
    await api.create(kinds.NODES, {"metadata": {"name": "node-1"}})
    async with (
        acting_as(lab, "croupier-manager") as manager,
        reservation_envs.reservation_env(manager, "default", "CRD") as env,
    ):
        ledger = Ledger("node-1", tuple(LedgerCard(f"node-1-{index}", index) for index in range(2)))
        await env.manager.open("node-1", ledger)
        async with env.works():
            env.api = api
            await env.ask("mine")
            await env.becomes("mine", "Reserved")
            await env.told("mine", "Reserved")
            await env.delete("mine")
            await env.vanishes("mine")
        assert env.used() == [0, 0]
        for forbidden in (
            manager.delete(kinds.PODS, "any", namespace="default"),
            manager.list(kinds.CONFIG_MAPS),
            manager.create(kinds.LEASES, {"metadata": {"name": "x"}}, namespace="default"),
            manager.create(kinds.PODS, pod("own"), namespace="default"),
            manager.create(kinds.PODS, {}, namespace="default", name="any", subresource="binding"),
        ):
            with pytest.raises(Forbidden):
                await forbidden


async def test_permissions_of_the_extender(installed):
    lab, api = installed
    await api.create(kinds.NODES, {"metadata": {"name": "node-1"}})
    made = await api.create(kinds.PODS, pod("placed"), namespace="default")
    holder = f"default/placed/{made.metadata.uid}"
    async with (
        acting_as(lab, "croupier-extender") as extender,
        reservation_envs.reservation_env(extender, "default", "CRD") as env,
    ):
        await env.manager.open("node-1", Ledger("node-1", (LedgerCard("node-1-0", 0),)))
        await env.manager.reserve(holder, "node-1", 1, 50)
        fence = {"metadata": {"annotations": {"gpu.mps.io/hold-expired": "now"}}}
        await extender.patch(kinds.PODS, "placed", fence, namespace="default")
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "placed", "uid": made.metadata.uid, "annotations": {ALLOCATION: "[]"}},
            "target": {"kind": "Node", "name": "node-1"},
        }
        await extender.create(kinds.PODS, binding, namespace="default", name="placed", subresource="binding")
        assert env.used() == [50]
        await env.manager.release(holder, "node-1")
        assert env.used() == [0]
        with pytest.raises(Forbidden):
            await extender.create(kinds.PODS, pod("own"), namespace="default")
