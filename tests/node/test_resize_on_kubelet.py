"""PodAllocations on a real kubelet, moved by `croupier manager` under the account of deployments/cpu.

The kernel's own word counts: a limit has moved when the quota of the container's control group has.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.lab import borrowed, cgroup, image
from croupier.lab.lab import Lab
from tests.cli.command import CROUPIER
from tests.lab.patience import until

ROOT = Path(__file__).resolve().parents[2]
RIGHTS = ("rbac", "own-namespace")
OURS = "d8-gpu-operator"
ACCOUNT = "croupier-cpu-limits"


def container(name: str = "main", limit: str | None = "200m", **resources: Any) -> dict[str, Any]:
    amounts = resources or {"requests": {"cpu": "50m"}, **({"limits": {"cpu": limit}} if limit else {})}
    command = ["sh", "-c", "trap exit TERM; sleep 3600 & wait"]
    shown = {"name": name, "image": image.BUSYBOX, "imagePullPolicy": "Never", "command": command}
    return {**shown, "resources": amounts}


@dataclass
class Kubelet:
    lab: Lab
    node: str
    namespace: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.lab.kubectl(*arguments, "-n", self.namespace, stdin=stdin).stdout

    def get(self, what: str, name: str) -> dict[str, Any]:
        shown = self.lab.kubectl("get", what, name, "-n", self.namespace, "-o", "json", check=False).stdout
        return dict(json.loads(shown or "{}"))

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
        until(lambda: self.get("pod", name).get("status", {}).get("phase") == "Running", f"{name} to run")

    def wish(self, pod: str, limit: str) -> None:
        spec = {"namespace": self.namespace, "podName": pod, "desiredCPULimit": limit}
        kind = {"apiVersion": "allocation.mbcas.io/v1alpha1", "kind": "PodAllocation"}
        self.apply({**kind, "metadata": {"name": pod}, "spec": spec})

    def becomes(self, name: str, phase: str, says: str = "") -> dict[str, Any]:
        seen: list[Any] = [None]

        def look() -> dict[str, Any] | None:
            found = seen[0] = self.get("podallocation", name)
            status = found.get("status", {})
            current = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
            fits = status.get("phase") == phase and says in status.get("reason", "")
            return status if current and fits else None

        try:
            return dict(until(look, f"{name} to be {phase} {says}"))
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen[0]}") from None

    def quotas(self, name: str) -> dict[str, str]:
        """Microseconds of every 100,000, by container, as the kernel has them."""
        told = self.get("pod", name)["status"]["containerStatuses"]
        return {one["name"]: quota(one["containerID"].removeprefix("containerd://")) for one in told}

    def restarts(self, name: str) -> int:
        return sum(one["restartCount"] for one in self.get("pod", name)["status"]["containerStatuses"])


def quota(container_id: str) -> str:
    for hierarchy in cgroup.hierarchies():
        for group in hierarchy.glob(f"croupier-*/**/{container_id}"):
            for file in ("cpu.cfs_quota_us", "cpu.max"):
                if (group / file).exists():
                    return (group / file).read_text().split()[0]
    return "nowhere"


@pytest.fixture(scope="module")
def kubelet(lab: Lab, crds: Any, real_node: str, tmp_path_factory: Any) -> Iterator[Kubelet]:
    """With everything of deployments/cpu that moves limits, its namespace replaced by the test's."""
    namespace = borrowed.create_namespace(lab.cluster, "limits-on-kubelet")
    files = "\n---\n".join((ROOT / f"deployments/cpu/{one}.yaml").read_text() for one in RIGHTS)
    rights = files.replace(OURS, namespace)
    lab.kubectl("apply", "-f", "-", stdin=rights)
    folder: Path = tmp_path_factory.mktemp("manager")
    with (folder / "log").open("w") as log:
        manager = subprocess.Popen(
            [*CROUPIER, "manager", *options(lab, namespace, folder)], stdout=log, stderr=log
        )
    try:
        yield Kubelet(lab, real_node, namespace)
    finally:
        manager.terminate()
        ended = manager.wait(20)
        lab.kubectl("delete", "-f", "-", "--wait=false", stdin=rights)
        borrowed.delete_namespace(lab.cluster, namespace, borrowed.namespaced(crds))
    assert ended == 0, (folder / "log").read_text()[-2000:]
    assert "Forbidden" not in (folder / "log").read_text()


def options(lab: Lab, namespace: str, folder: Path) -> list[str]:
    """It speaks as its service account and with the book in memory, which is somebody else's."""
    said = yaml.safe_load(lab.kubeconfig.read_text())
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    for user in said["users"]:
        user["user"] |= {"as": f"system:serviceaccount:{namespace}:{ACCOUNT}", "as-groups": groups}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(said))
    return [f"--kubeconfig={path}", f"--lease-namespace={namespace}", "--health=127.0.0.1:0"]


def test_a_limit_moves_up_and_down_in_the_kernel_and_nothing_restarts(kubelet):
    kubelet.runs("web")
    assert kubelet.quotas("web") == {"main": "20000"}

    kubelet.wish("web", "400m")
    kubelet.becomes("web", "Applied", "Enforced: ")
    assert kubelet.quotas("web") == {"main": "40000"}

    kubelet.wish("web", "0.07")
    status = kubelet.becomes("web", "Applied")
    assert kubelet.quotas("web") == {"main": "7000"}
    assert (status["appliedCPULimit"], status["originalCPULimit"]) == ("70m", "200m")
    assert kubelet.restarts("web") == 0
    shown = " ".join(kubelet.kubectl("get", "podallocations", "web").split())
    assert "POD DESIRED APPLIED PHASE REASON" in shown
    assert f"web 0.07 70m Applied Enforced: the kubelet of {kubelet.node} reports 70m" in shown


def test_each_container_gets_its_part_in_the_kernel(kubelet):
    kubelet.runs("two", container("app", "300m"), container("log", "100m"))
    kubelet.wish("two", "800m")

    status = kubelet.becomes("two", "Applied")

    assert kubelet.quotas("two") == {"app": "60000", "log": "20000"}
    assert status["originalContainerLimits"] == {"app": "300m", "log": "100m"}


def test_a_container_that_starts_again_comes_with_the_limit(kubelet):
    kubelet.runs("again")
    kubelet.wish("again", "300m")
    kubelet.becomes("again", "Applied")

    kubelet.lab.kubectl("exec", "again", "-n", kubelet.namespace, "--", "kill", "1", check=False)
    until(lambda: kubelet.restarts("again") == 1, "a restart")

    until(lambda: kubelet.get("podallocation", "again")["status"]["observedRestarts"] == 1, "notice of it")
    kubelet.becomes("again", "Applied")
    assert kubelet.quotas("again") == {"main": "30000"}


def test_those_that_cannot_move_say_why(kubelet):
    firm = container(
        "main", requests={"cpu": "100m", "memory": "32Mi"}, limits={"cpu": "100m", "memory": "32Mi"}
    )
    kubelet.runs("firm", firm)
    kubelet.runs("free", container(limit=None))
    for name in ("firm", "free", "nobody"):
        kubelet.wish(name, "300m")

    kubelet.becomes("firm", "Failed", "Guaranteed: ")
    kubelet.becomes("free", "Failed", "NoCPULimit: ")
    kubelet.becomes("nobody", "Failed", "PodNotFound: ")
    assert kubelet.quotas("firm") == {"main": "10000"}
    assert kubelet.quotas("free") == {"main": "-1"}


def test_requests_that_move_along_wait_for_room_or_are_refused(kubelet):
    """Of a Guaranteed pod whose owner opted in: requests need room, limits alone never do."""
    cores = os.cpu_count() or 1
    firm = container(
        "main", requests={"cpu": "100m", "memory": "32Mi"}, limits={"cpu": "100m", "memory": "32Mi"}
    )
    kubelet.runs("moves", firm, labels={"mbcas.io/allow-guaranteed": "true"})
    kubelet.wish("moves", "200m")
    kubelet.becomes("moves", "Applied")
    assert kubelet.quotas("moves") == {"main": "20000"}

    kubelet.runs("hog", container("main", requests={"cpu": f"{cores * 1000 - 700}m"}))
    kubelet.wish("moves", "0.9")
    kubelet.becomes("moves", "Pending", "Deferred: ")
    kubelet.kubectl("delete", "pod", "hog")
    kubelet.becomes("moves", "Applied")
    assert kubelet.quotas("moves") == {"main": "90000"}

    kubelet.wish("moves", str(cores * 100))
    kubelet.becomes("moves", "Failed", "NodeCapacity: ")
    assert kubelet.quotas("moves") == {"main": "90000"}


def test_a_recreated_pod_is_another_pod(kubelet):
    kubelet.runs("twice")
    kubelet.wish("twice", "300m")
    kubelet.becomes("twice", "Applied")

    kubelet.kubectl("delete", "pod", "twice")
    kubelet.runs("twice")

    until(lambda: not kubelet.get("podallocation", "twice"), "the old one to go with its pod")
    assert kubelet.quotas("twice") == {"main": "20000"}


def test_another_namespace_is_refused_by_the_api_server(kubelet):
    spec = {"namespace": "kube-system", "podName": "coredns", "desiredCPULimit": "300m"}
    kind = {"apiVersion": "allocation.mbcas.io/v1alpha1", "kind": "PodAllocation"}
    body = json.dumps({**kind, "metadata": {"name": "reach"}, "spec": spec})

    def refused() -> bool:
        """The policy is compiled a moment after it was accepted."""
        tried = ("create", "--dry-run=server", "-n", kubelet.namespace, "-f", "-")
        said = kubelet.lab.kubectl(*tried, stdin=body, check=False).stderr
        return f"spec.namespace is kube-system, but the PodAllocation is in {kubelet.namespace}" in said

    until(refused, "the policy to say no")


def test_the_examples_work_as_printed(kubelet):
    def apply(name: str) -> None:
        written = (ROOT / f"examples/podallocation/{name}.yaml").read_text()
        written = written.replace("namespace: default", f"namespace: {kubelet.namespace}")
        kubelet.kubectl("apply", "-f", "-", stdin=written)

    apply("pod")
    until(lambda: kubelet.get("pod", "busy").get("status", {}).get("phase") == "Running", "it to run")
    apply("more")
    kubelet.kubectl("wait", "--for=condition=Applied", "podallocation/busy", "--timeout=60s")
    assert kubelet.quotas("busy") == {"loop": "40000"}
    apply("less")
    kubelet.becomes("busy", "Applied")
    assert kubelet.quotas("busy") == {"loop": "10000"}
    apply("too-little")
    kubelet.becomes("busy", "Failed", "BelowRequest: ")
    assert kubelet.quotas("busy") == {"loop": "10000"}
    assert kubelet.restarts("busy") == 0
