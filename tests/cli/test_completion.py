"""The shell completes names of objects, and an unreachable cluster suggests nothing."""

import os

import pytest

from croupier.api import kinds
from tests.cli import command, env


def completed(kubeconfig, *words: str) -> list[str]:
    """What bash would be offered for the last word."""
    result = command.run(
        (),
        env={
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "_CROUPIER_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("croupier", *words)),
            "COMP_CWORD": str(len(words)),
        },
    )
    assert result.err == ""
    return result.out.split()


@pytest.mark.parametrize(
    "verb", [["ledger"], ["available"], ["audit"], ["cards", "--node"], ["market", "status"]]
)
async def test_nodes_are_completed(api, clean_cluster, cluster, verb):
    for name in ("worker-1", "worker-2", "other"):
        await env.node(api, name)

    assert completed(cluster.kubeconfig, *verb, "work") == ["worker-1", "worker-2"]


async def test_pods_are_completed_in_the_chosen_namespace(api, namespace, cluster):
    body = {"metadata": {"name": "trainer"}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    await api.create(kinds.PODS, {"apiVersion": "v1", "kind": "Pod", **body}, namespace=namespace)

    assert completed(cluster.kubeconfig, "explain", "pod", f"{namespace}/tr") == [f"{namespace}/trainer"]
    assert completed(cluster.kubeconfig, "explain", "pod", "-n", namespace, "tr") == ["trainer"]
    assert completed(cluster.kubeconfig, "-n", namespace, "explain", "pod", "tr") == ["trainer"]


async def test_cards_and_pools_are_completed(api, crds, clean_cluster, cluster):
    await api.create(kinds.GPU_DEVICES, _object("GPUDevice", "node-1-0000-10-00-0"))
    await api.create(kinds.GPU_POOLS, _object("GPUPool", "team-a", {"allocation": {"mode": "Exclusive"}}))

    assert completed(cluster.kubeconfig, "drain", "node-1-") == ["node-1-0000-10-00-0"]
    assert completed(cluster.kubeconfig, "assign", "node-1-0000-10-00-0", "te") == ["team-a"]
    assert completed(cluster.kubeconfig, "pools", "show", "te") == ["team-a"]


def test_strategies_are_completed(tmp_path):
    assert completed(tmp_path / "none", "what-if", "--strategy", "B") == ["BinPack"]


def test_without_a_cluster_nothing_is_suggested(tmp_path):
    assert completed(tmp_path / "none", "ledger", "") == []


def _object(kind: str, name: str, spec: dict[str, object] | None = None) -> dict[str, object]:
    version = "gpu.deckhouse.io/v1alpha1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec or {}}
