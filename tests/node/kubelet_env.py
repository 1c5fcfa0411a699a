"""Pods on a real kubelet whose CPU limits `croupier manager` changes with the account of deployments/cpu."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from croupier_lab import api_proxy, cgroup, image, shared_cluster
from croupier_lab.lab import Lab
from croupier_lab.shared_cluster import PODS, ServedKind
from tests.cli.command import CROUPIER
from tests.polling import until_blocking

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ("rbac", "own-namespace")
KINDS = {"pod": PODS, "podallocation": ServedKind("allocation.mbcas.io", "v1alpha1", "podallocations")}
NAMESPACE = "d8-gpu-operator"
ACCOUNT = "croupier-cpu-limits"


def container(name: str = "main", limit: str | None = "200m", **resources: Any) -> dict[str, Any]:
    amounts = resources or {"requests": {"cpu": "50m"}, **({"limits": {"cpu": limit}} if limit else {})}
    command = ["sh", "-c", "trap exit TERM; sleep 3600 & wait"]
    body = {"name": name, "image": image.BUSYBOX, "imagePullPolicy": "Never", "command": command}
    return {**body, "resources": amounts}


@dataclass
class KubeletEnv:
    lab: Lab
    node: str
    namespace: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.lab.kubectl(*arguments, "-n", self.namespace, stdin=stdin).stdout

    def get(self, what: str, name: str) -> dict[str, Any]:
        """The object; empty if there is none. Through a proxy: a test asks until it changes."""
        listed = api_proxy.connect(self.lab.cluster).items(KINDS[what].path(self.namespace))
        return next((item for item in listed if item["metadata"]["name"] == name), {})

    def apply(self, body: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def runs(self, name: str, *containers: dict[str, Any], **meta: Any) -> None:
        spec = {
            "nodeName": self.node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": list(containers or (container(),)),
        }
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec})
        until_blocking(
            lambda: self.get("pod", name).get("status", {}).get("phase") == "Running", f"{name} to run"
        )

    def wish(self, pod: str, limit: str) -> None:
        spec = {"namespace": self.namespace, "podName": pod, "desiredCPULimit": limit}
        kind = {"apiVersion": "allocation.mbcas.io/v1alpha1", "kind": "PodAllocation"}
        self.apply({**kind, "metadata": {"name": pod}, "spec": spec})

    def becomes(self, name: str, phase: str, says: str = "") -> dict[str, Any]:
        last: list[Any] = [None]

        def matching_status() -> dict[str, Any] | None:
            allocation = last[0] = self.get("podallocation", name)
            status = allocation.get("status", {})
            current = status.get("observedGeneration") == allocation.get("metadata", {}).get("generation")
            matches = status.get("phase") == phase and says in status.get("reason", "")
            return status if current and matches else None

        try:
            return dict(until_blocking(matching_status, f"{name} to be {phase} {says}"))
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {last[0]}") from None

    def quotas(self, name: str) -> dict[str, str]:
        """The CPU quota in the kernel by container: microseconds of every 100,000."""
        statuses = self.get("pod", name)["status"]["containerStatuses"]
        ids = {status["name"]: status["containerID"] for status in statuses}
        return {name: quota(identity.removeprefix("containerd://")) for name, identity in ids.items()}

    def restarts(self, name: str) -> int:
        statuses = self.get("pod", name)["status"]["containerStatuses"]
        return sum(status["restartCount"] for status in statuses)


def quota(container_id: str) -> str:
    for hierarchy in cgroup.hierarchies():
        for group in hierarchy.glob(f"croupier-*/**/{container_id}"):
            for file in ("cpu.cfs_quota_us", "cpu.max"):
                if (group / file).exists():
                    return (group / file).read_text().split()[0]
    return "nowhere"


@contextlib.contextmanager
def managed(lab: Lab, crds: Any, node: str, folder: Path) -> Iterator[KubeletEnv]:
    """Run the manager with the manifests of deployments/cpu, in the test's namespace."""
    everywhere = ("get", "pods", "-A", f"--field-selector=spec.nodeName={node}", "-o", "name")
    until_blocking(lambda: not lab.kubectl(*everywhere).stdout, "pods of an earlier kubelet to be gone")
    namespace = shared_cluster.create_namespace(lab.cluster, "limits-on-kubelet")
    files = "\n---\n".join((ROOT / f"deployments/cpu/{name}.yaml").read_text() for name in MANIFESTS)
    rights = files.replace(NAMESPACE, namespace)
    lab.kubectl("apply", "-f", "-", stdin=rights)
    with (folder / "log").open("w") as log:
        manager = subprocess.Popen(
            [*CROUPIER, "manager", "--controllers=limits", *options(lab, namespace, folder)],
            stdout=log,
            stderr=log,
        )
    try:
        yield KubeletEnv(lab, node, namespace)
    finally:
        manager.terminate()
        ended = manager.wait(20)
        lab.kubectl("delete", "-f", "-", "--wait=false", stdin=rights)
        shared_cluster.delete_namespace(lab.cluster, namespace, shared_cluster.namespaced(crds))
    assert ended == 0, (folder / "log").read_text()[-2000:]
    assert "forbidden" not in (folder / "log").read_text().lower()


def options(lab: Lab, namespace: str, folder: Path) -> list[str]:
    """The options of the manager: it impersonates its service account."""
    kubeconfig = yaml.safe_load(lab.kubeconfig.read_text())
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    for user in kubeconfig["users"]:
        user["user"] |= {"as": f"system:serviceaccount:{namespace}:{ACCOUNT}", "as-groups": groups}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return [f"--kubeconfig={path}", f"--lease-namespace={namespace}", "--health=127.0.0.1:0"]
