"""The rights that deployments/node gives to the agent of a node, and a kubeconfig that speaks with them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from croupier.lab.cluster import Cluster

FOLDER = Path(__file__).resolve().parents[2] / "deployments/node"
OURS = "d8-gpu-operator"
ACCOUNT = "croupier-node"


@contextlib.contextmanager
def rights(cluster: Cluster, namespace: str) -> Iterator[None]:
    """With the test's namespace in the place of ours."""
    text = "\n---\n".join((FOLDER / f"{name}.yaml").read_text() for name in ("rbac", "own-node"))
    wanted = text.replace(OURS, namespace)
    cluster.kubectl("apply", "-f", "-", stdin=wanted)
    try:
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=wanted)


def account(cluster: Cluster, namespace: str, node: str, folder: Path) -> Path:
    """As the agent on that node speaks: its token names the node."""
    said = yaml.safe_load(cluster.kubeconfig.read_text())
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    for user in said["users"]:
        user["user"] |= {
            "as": f"system:serviceaccount:{namespace}:{ACCOUNT}",
            "as-groups": groups,
            "as-user-extra": {"authentication.kubernetes.io/node-name": [node]},
        }
    path = folder / f"{node}.kubeconfig"
    path.write_text(yaml.safe_dump(said))
    return path
