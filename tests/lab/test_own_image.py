"""The Croupier image is built without Docker and runs unprivileged on a read-only root file system."""

import asyncio
import json
from typing import Any

import pytest

from croupier_lab import own_image, realnode, user_dirs
from croupier_lab.progress import NoProgress
from tests.polling import until_blocking

TAG = "croupier.lab/croupier:test"


def pod(node: str, *args: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "croupier"},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "main",
                    "image": TAG,
                    "imagePullPolicy": "Never",
                    "args": list(args),
                    "securityContext": {
                        "readOnlyRootFilesystem": True,
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def loaded(lab, real_node, tmp_path_factory):

    if reason := own_image.obstacle():
        pytest.skip(reason)

    async def load() -> None:
        archive = tmp_path_factory.mktemp("image") / "croupier.tar"
        await own_image.build(archive, user_dirs.cache(), NoProgress(), tag=TAG)
        await realnode.load(lab, archive)

    asyncio.run(load())
    return real_node


def test_it_runs_unprivileged_and_read_only(lab, loaded, namespace):

    lab.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(pod(loaded, "version", "-o", "json")))
    path = "jsonpath={.status.phase}"

    def ended() -> bool:
        phase = lab.kubectl("get", "pod", "croupier", "-n", namespace, "-o", path).stdout
        return phase in ("Succeeded", "Failed")

    until_blocking(ended, "the pod to end")
    assert '{"croupier": "' in lab.kubectl("logs", "croupier", "-n", namespace).stdout


def test_an_installed_package_cannot_build_the_image(monkeypatch, tmp_path):
    monkeypatch.setattr(own_image, "CHECKOUT", tmp_path)

    assert "from a checkout" in str(own_image.obstacle())
