"""Infeasible resizes on a real kubelet.

Current kubelets report only one of our changes as infeasible (docs/podallocation.md): that of a Guaranteed
pod with the static CPU manager, even if the pod has no exclusive CPU. So this kubelet uses the static CPU
manager.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from croupier_lab.lab import Lab
from tests.node.kubelet_env import KubeletEnv, container, managed
from tests.polling import until_blocking

KUBELET = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
FIRM = {"cpu": "100m", "memory": "32Mi"}


@pytest.fixture(scope="module")
def kubelet(lab: Lab, crds: Any, real_node: str, tmp_path_factory: Any) -> Iterator[KubeletEnv]:
    with managed(lab, crds, real_node, tmp_path_factory.mktemp("manager")) as made:
        yield made


def generation(kubelet: KubeletEnv, name: str) -> int:
    return int(kubelet.get("pod", name)["metadata"]["generation"])


def pending(kubelet: KubeletEnv, name: str) -> list[dict[str, Any]]:
    return [
        one for one in kubelet.get("pod", name)["status"]["conditions"] if one["type"] == "PodResizePending"
    ]


def test_an_infeasible_guaranteed_pod_is_reset_and_retried(kubelet):
    labels = {"mbcas.io/allow-guaranteed": "true"}
    kubelet.runs("firm", container("main", requests=FIRM, limits=FIRM), labels=labels)
    came = generation(kubelet, "firm")

    kubelet.wish("firm", "200m")
    status = kubelet.becomes("firm", "Failed", "Infeasible: ")

    assert status["reason"] == (
        'Infeasible: Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static";'
        " the limit is reset to 100m"
    )
    assert "appliedCPULimit" not in status, "nothing was applied"
    assert status["originalCPULimit"] == "100m"
    until_blocking(lambda: generation(kubelet, "firm") >= came + 4, "another try, and back again")
    kubelet.becomes("firm", "Failed", "Infeasible: ")
    until_blocking(lambda: not pending(kubelet, "firm"), "the kubelet to have nothing before it")
    main = kubelet.get("pod", "firm")["spec"]["containers"][0]
    assert main["resources"] == {"limits": FIRM, "requests": FIRM}
    assert kubelet.quotas("firm") == {"main": "10000"}
    assert kubelet.restarts("firm") == 0

    kubelet.wish("firm", "100m")
    kubelet.becomes("firm", "Applied", "Enforced: ")


def test_a_limit_alone_is_never_infeasible(kubelet):
    """Neither with the static CPU manager, nor far beyond the capacity of the node."""
    kubelet.runs("loose")
    for limit, quota in (("300m", "30000"), ("64", "6400000")):
        kubelet.wish("loose", limit)
        kubelet.becomes("loose", "Applied", "Enforced: ")
        assert kubelet.quotas("loose") == {"main": quota}
    told = kubelet.kubectl("get", "events", "--field-selector=reason=ResizeInfeasible", "-o", "name")
    assert "loose" not in told
