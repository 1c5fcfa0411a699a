"""`helm test`: the account of its pod may read all that doctor checks, and no more is refused to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier_lab import kubeconfig
from croupier_lab.cluster import Cluster
from tests.cli.env import CommandResult, croupier
from tests.install.rendering import all_objects

REGISTRATION: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "croupier-webhook"},
    "webhooks": [
        {
            "name": "fallback.gpu-webhook.k8s.io",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/mutate"},
        }
    ],
}
"""A webhook without rules: the API server never calls it, so the pod of the probe passes it by."""


@pytest.fixture
def account(cluster: Cluster, namespace: str, crds: Any, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of the account, with the rights that the chart gives to it."""
    objects = [
        item
        for item in all_objects(f"--namespace={namespace}")
        if item["metadata"]["name"].startswith("croupier-doctor") and item["kind"] != "Pod"
    ]
    written = yaml.safe_dump_all([*objects, REGISTRATION])
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=written)
    token = cluster.kubectl("create", "token", "croupier-doctor", "-n", namespace).stdout.strip()
    path = tmp_path / "doctor.kubeconfig"
    kubeconfig.with_token(path, cluster.kubeconfig, user="croupier-doctor", token=token)
    yield path
    cluster.kubectl("delete", "-f", "-", stdin=written)


def findings(answer: CommandResult) -> list[tuple[str, ...]]:
    return [tuple(item.values()) for item in answer.data["findings"]]


def test_doctor_finds_the_same_as_for_an_administrator(account: Path, cluster: Cluster, namespace: str):
    asked = ("doctor", "-n", namespace, "-o", "json")
    restricted, admin = (croupier(*asked, kubeconfig=path) for path in (account, cluster.kubeconfig))

    assert (restricted.err, admin.err) == ("", "")
    assert findings(restricted) == findings(admin)
    assert "the API server did not call it for a pod that requests cards" in restricted.out
    assert "could not run" not in restricted.out
