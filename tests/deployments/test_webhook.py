"""deployments/webhook: minimal permissions, and an end-to-end test."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio
import yaml

from croupier.admission import mark_policy
from croupier.admission.configurations import ServiceTarget
from croupier_lab import croupier_processes, fleet, nodes
from croupier_lab.controlplane import COMPONENTS
from croupier_lab.croupier_processes import EXTENDER, MANAGER, NAMESPACE, WEBHOOK
from croupier_lab.lab import Lab
from croupier_lab.progress import LogProgress
from tests.cli import command
from tests.deployments.manifests import documents
from tests.polling import until

ROOT = Path(__file__).resolve().parents[2] / "deployments"
FOLDER = ROOT / "webhook"
QUIET = LogProgress(lambda _: None)
ACCOUNTS = {WEBHOOK: "gpu-admission-webhook", EXTENDER: EXTENDER, MANAGER: MANAGER}

TRAINING_JOB = """
apiVersion: v1
kind: Pod
metadata: {name: training-job}
spec:
  containers:
  - name: trainer
    image: any
    resources:
      requests: {nvidia.com/mig-2g.20gb: 1}
      limits: {nvidia.com/mig-2g.20gb: 1}
"""


def test_the_process_accepts_its_arguments_and_matches_the_service():
    found = {item["kind"]: item for item in documents(FOLDER, "webhook")}
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    help_of = command.run([*container["args"], "--help"], env=os.environ)
    assert help_of.code == 0, help_of.err
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {f"--listen=:{ports['webhook']}", f"--health=:{ports['health']}"} <= set(container["args"])

    service, registered = found["Service"], ServiceTarget(NAMESPACE)
    assert (service["metadata"]["name"], service["metadata"]["namespace"]) == (registered.name, NAMESPACE)
    assert service["spec"]["ports"] == [{"name": "webhook", "port": registered.port, "targetPort": "webhook"}]
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        service["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_two_restricted_replicas():
    (item,) = (item for item in documents(FOLDER) if item["kind"] == "Deployment")
    spec = item["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert item["spec"]["replicas"] == 2
    assert spec["serviceAccountName"] == ACCOUNTS[WEBHOOK]
    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_no_wildcards_and_pods_and_nodes_are_read_only():
    rules = [rule for item in documents(FOLDER) if item["kind"].endswith("Role") for rule in item["rules"]]

    assert "*" not in json.dumps(rules)
    read_only = [rule["verbs"] for rule in rules if {"pods", "nodes"} & set(rule["resources"])]
    assert read_only == [["list", "watch"]]


class WebhookDeploymentEnv:
    """A lab with item node, in which every process uses its own account."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def account(self, name: str) -> Path:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
        config = yaml.safe_load(self.lab.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] |= {"as": f"system:serviceaccount:{NAMESPACE}:{name}", "as-groups": groups}
        path = self.lab.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def reach_by_url(self) -> None:
        """Replace the Service of the configurations by a URL; the webhook updates the URL itself."""
        for item in documents(FOLDER, "configurations"):
            patch = [
                {
                    "op": "replace",
                    "path": f"/webhooks/{at}/clientConfig",
                    "value": {"url": "https://127.0.0.1:1"},
                }
                for at in range(len(item["webhooks"]))
            ]
            name = item["metadata"]["name"]
            self.lab.kubectl("patch", item["kind"], name, "--type=json", f"-p={json.dumps(patch)}")

    def may(self, *what: str) -> bool:
        account = f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNTS[WEBHOOK]}"
        return self.lab.kubectl("auth", "can-i", *what, account, check=False).stdout.strip() == "yes"

    def cut(self, **amounts: int) -> None:
        """Set the allocatable MIG profiles of the node, by their short names."""
        every = dict.fromkeys(("nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/gpu"), "0")
        now = {
            **every,
            **{f"nvidia.com/mig-{name[1:].replace('_', '.')}": str(n) for name, n in amounts.items()},
        }
        patch = {"status": {"capacity": now, "allocatable": now}}
        self.lab.kubectl(
            "patch", "node", "gpu-worker", "--subresource=status", "--type=merge", f"-p={json.dumps(patch)}"
        )

    def runs(self, name: str, manifest: str) -> tuple[str, dict[str, Any]]:
        """Create a pod and wait until it is Ready; returns the warning of kubectl and the pod."""
        warned = self.lab.kubectl("apply", "-f", "-", stdin=manifest).stderr
        self.lab.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
        return warned, json.loads(self.lab.kubectl("get", "pod", name, "-o", "json").stdout)

    def try_to(self, *args: str, stdin: str) -> str:
        ended = self.lab.kubectl(*args, "-f", "-", stdin=stdin, check=False)
        return ended.stdout + ended.stderr

    def events(self) -> list[str]:
        listed = json.loads(self.lab.kubectl("get", "events", "-o", "json").stdout)["items"]
        return [item["message"] for item in listed if item["reason"] == "GPUFallback"]


@pytest_asyncio.fixture
async def day(private_lab: Any) -> AsyncIterator[WebhookDeploymentEnv]:
    lab = await private_lab(parts=COMPONENTS)
    for folder in (ROOT / "namespace", ROOT / "mps-dra", FOLDER):
        lab.kubectl("apply", "-k", str(folder))
    await fleet.create(lab, nodes.fleet(0, cards=None, named=["gpu-worker=SIM-70GB:4"]), QUIET)
    made = WebhookDeploymentEnv(lab)
    made.reach_by_url()
    speaking = {name: made.account(account) for name, account in ACCOUNTS.items()}
    await croupier_processes.start_croupier(lab, "CRD", QUIET, webhook=True, kubeconfigs=speaking)
    yield made


async def test_fallback_marking_and_permissions(day: WebhookDeploymentEnv):
    lab = day.lab
    again = lab.kubectl("apply", "-f", str(FOLDER / "require-mark.yaml"), "--dry-run=server").stdout
    assert {line.split(" (")[0].rpartition(" ")[2] for line in again.splitlines()} == {"unchanged"}

    day.cut(m1g_10gb=28)
    warned, pod = await asyncio.to_thread(day.runs, "training-job", TRAINING_JOB)
    (container,) = pod["spec"]["containers"]
    message = "no node offers nvidia.com/mig-2g.20gb: container trainer gets nvidia.com/mig-1g.10gb instead"
    assert warned.startswith(f"Warning: {message}")
    assert container["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1", "gpu.mps.io/ledger": "1"}
    assert pod["metadata"]["annotations"]["gpu-webhook.k8s.io/fallback"] == "2g.20gb->1g.10gb"
    await until(lambda: any(event.startswith(message) for event in day.events()), "the Event")

    lab.kubectl("delete", "pod", "training-job")
    day.cut(m2g_20gb=8, m3g_30gb=4)
    warned, pod = await asyncio.to_thread(day.runs, "training-job", TRAINING_JOB)
    (container,) = pod["spec"]["containers"]
    assert warned == ""
    assert container["resources"]["limits"] == {"nvidia.com/mig-2g.20gb": "1", "gpu.mps.io/ledger": "1"}
    assert "gpu-webhook.k8s.io/fallback" not in pod["metadata"]["annotations"]

    complaints = await asyncio.to_thread(Path(lab.process(WEBHOOK).log).read_text)
    assert "forbidden" not in complaints.lower()
    lab.kill(WEBHOOK)
    another = TRAINING_JOB.replace("training-job", "another")
    plain = TRAINING_JOB.replace("training-job", "plain").replace("nvidia.com/mig-2g.20gb", "cpu")
    assert mark_policy.unmarked("nvidia.com/mig-2g.20gb") in day.try_to("create", stdin=another)
    assert "pod/plain created" in day.try_to("create", stdin=plain)

    assert day.may("list", "nodes")
    assert not day.may("create", "pods")
    assert not day.may("get", "secrets", "-n", "kube-system")
    assert not day.may("get", "secret/another", "-n", NAMESPACE)
    assert not day.may("patch", "mutatingwebhookconfigurations/another")
