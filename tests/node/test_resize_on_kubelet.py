"""PodAllocations on a real kubelet, with `croupier manager` under the service account of deployments/cpu.

A limit counts as changed when the quota of the container's cgroup has changed.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from croupier_lab.lab import Lab
from tests.node.kubelet_env import ROOT, KubeletEnv, container, managed
from tests.polling import until_blocking

SECONDS = 20


@pytest.fixture(scope="module")
def kubelet(lab: Lab, crds: Any, real_node: str, tmp_path_factory: Any) -> Iterator[KubeletEnv]:
    with managed(lab, crds, real_node, tmp_path_factory.mktemp("manager")) as made:
        yield made


def test_a_limit_is_changed_in_the_kernel_without_a_restart(kubelet):
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


def test_each_container_gets_its_share_in_the_kernel(kubelet):
    kubelet.runs("two", container("app", "300m"), container("log", "100m"))
    kubelet.wish("two", "800m")

    status = kubelet.becomes("two", "Applied")

    assert kubelet.quotas("two") == {"app": "60000", "log": "20000"}
    assert status["originalContainerLimits"] == {"app": "300m", "log": "100m"}


def test_a_restarted_container_keeps_the_limit(kubelet):
    kubelet.runs("again")
    kubelet.wish("again", "300m")
    kubelet.becomes("again", "Applied")

    kubelet.lab.kubectl("exec", "again", "-n", kubelet.namespace, "--", "kill", "1", check=False)
    until_blocking(lambda: kubelet.restarts("again") == 1, "a restart")

    until_blocking(
        lambda: kubelet.get("podallocation", "again")["status"]["observedRestarts"] == 1, "notice of it"
    )
    kubelet.becomes("again", "Applied")
    assert kubelet.quotas("again") == {"main": "30000"}


def test_pods_that_cannot_be_resized_have_a_reason(kubelet):
    firm = container(
        "main", requests={"cpu": "100m", "memory": "32Mi"}, limits={"cpu": "100m", "memory": "32Mi"}
    )
    kubelet.runs("firm", firm)
    kubelet.runs("free", container(limit=None))
    for name in ("firm", "free", "missing"):
        kubelet.wish(name, "300m")

    kubelet.becomes("firm", "Failed", "Guaranteed: ")
    kubelet.becomes("free", "Failed", "NoCPULimit: ")
    kubelet.becomes("missing", "Failed", "PodNotFound: ")
    assert kubelet.quotas("firm") == {"main": "10000"}
    assert kubelet.quotas("free") == {"main": "-1"}


def test_raised_requests_are_deferred_or_refused(kubelet):
    """Requests of an opted-in Guaranteed pod need free CPU; limits alone never do."""
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


def test_a_recreated_pod_needs_a_new_podallocation(kubelet):
    kubelet.runs("twice")
    kubelet.wish("twice", "300m")
    kubelet.becomes("twice", "Applied")

    kubelet.kubectl("delete", "pod", "twice")
    kubelet.runs("twice")

    until_blocking(lambda: not kubelet.get("podallocation", "twice"), "the old one to go with its pod")
    assert kubelet.quotas("twice") == {"main": "20000"}


def test_another_namespace_is_refused_by_the_api_server(kubelet):
    spec = {"namespace": "kube-system", "podName": "coredns", "desiredCPULimit": "300m"}
    kind = {"apiVersion": "allocation.mbcas.io/v1alpha1", "kind": "PodAllocation"}
    body = json.dumps({**kind, "metadata": {"name": "reach"}, "spec": spec})

    def refused() -> bool:
        """A policy is enforced only shortly after its creation."""
        tried = ("create", "--dry-run=server", "-n", kubelet.namespace, "-f", "-")
        said = kubelet.lab.kubectl(*tried, stdin=body, check=False).stderr
        return f"spec.namespace is kube-system, but the PodAllocation is in {kubelet.namespace}" in said

    until_blocking(refused, "the policy to say no")


def test_the_examples_work_as_printed(kubelet):
    def apply(name: str) -> None:
        written = (ROOT / f"examples/podallocation/{name}.yaml").read_text()
        written = written.replace("namespace: default", f"namespace: {kubelet.namespace}")
        kubelet.kubectl("apply", "-f", "-", stdin=written)

    apply("pod")
    until_blocking(
        lambda: kubelet.get("pod", "busy").get("status", {}).get("phase") == "Running", "it to run"
    )
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
