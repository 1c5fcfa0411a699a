"""The service account of deployments/node, and a kubeconfig that impersonates it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from croupier_lab.cluster import Cluster

FOLDER = Path(__file__).resolve().parents[2] / "deployments/node"
NAMESPACE = "d8-gpu-operator"
ACCOUNT = "croupier-node"


@contextlib.contextmanager
def installed_account(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Install the manifests in the test's namespace."""
    text = "\n---\n".join((FOLDER / f"{name}.yaml").read_text() for name in ("rbac", "own-node"))
    manifests = text.replace(NAMESPACE, namespace)
    cluster.kubectl("apply", "-f", "-", stdin=manifests)
    try:
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=manifests)


def account_kubeconfig(cluster: Cluster, namespace: str, node: str, folder: Path) -> Path:
    """A kubeconfig of the agent on that node. Its token names the node."""
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    for user in kubeconfig["users"]:
        user["user"] |= {
            "as": f"system:serviceaccount:{namespace}:{ACCOUNT}",
            "as-groups": groups,
            "as-user-extra": {"authentication.kubernetes.io/node-name": [node]},
        }
    path = folder / f"{node}.kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path
