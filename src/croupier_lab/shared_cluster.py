"""Use a shared cluster for tests and restore its original state.

Uses kubectl, because it supports every kubeconfig and the tests must not depend on the code under test.
"""

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from croupier_lab.cluster import Cluster

NODES = "nodes"
ESTABLISHED_TIMEOUT = "60s"
ACCOUNT_TIMEOUT = "30s"
BATCH_SIZE = 500
FORCE_DELETE = ("--grace-period=0", "--force")
NO_FINALIZERS = '--patch={"metadata":{"finalizers":null}}'

Manifest = Mapping[str, Any]


def create_namespace(cluster: Cluster, wish: str) -> str:
    """Create a namespace named after `wish` and wait for its default service account."""
    stem = re.sub(r"[^a-z0-9]+", "-", wish.lower()).strip("-")[:40].strip("-")
    name = f"{stem or 'test'}-{secrets.token_hex(3)}"
    cluster.kubectl("create", "namespace", name)
    in_it = f"--namespace={name}"
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", in_it, f"--timeout={ACCOUNT_TIMEOUT}")
    return name


def delete_namespace(cluster: Cluster, name: str, kinds: Sequence[str] = ()) -> None:
    """Delete a namespace without waiting; removes finalizers of `kinds`, whose controllers may not run.

    Pods are deleted by force: otherwise pods of a deleted node would exist for another minute.
    """
    in_it = f"--namespace={name}"
    cluster.kubectl("delete", ",".join(("pods", *kinds)), "--all", in_it, "--wait=false", *FORCE_DELETE)
    if kinds:
        _lift_finalizers(cluster, _names(cluster, kinds, in_it), in_it)
    cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


def install(cluster: Cluster, definitions: Mapping[str, Manifest]) -> tuple[str, ...]:
    """Install the CRDs; returns those that were not installed before."""
    wanted = list(definitions.values())
    names = [f"crd/{definition['metadata']['name']}" for definition in wanted]
    known = _installed_crds(cluster)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=_list(wanted))
    cluster.kubectl("wait", "--for=condition=Established", f"--timeout={ESTABLISHED_TIMEOUT}", *names)
    return tuple(name for name in names if name.partition("/")[2] not in known)


def crd_conflict(cluster: Cluster, definitions: Mapping[str, Manifest]) -> str | None:
    """Why the CRDs must not be installed: others exist. None if there is no conflict."""
    known = _installed_crds(cluster)
    existing = [definition for definition in definitions.values() if definition["metadata"]["name"] in known]
    if not existing:
        return None
    difference = cluster.kubectl(
        "diff", "--server-side", "--force-conflicts", "-f", "-", stdin=_list(existing), check=False
    )
    if difference.returncode == 0:
        return None
    return (
        "the cluster has other versions of the CRDs, and this run does not replace them; "
        "install these first (kubectl apply -k config/crd/) or use another cluster"
    )


def existing_objects(cluster: Cluster, kinds: Sequence[str]) -> str | None:
    """Why the cluster cannot be cleaned up afterwards: it has objects of `kinds`. None if it has none."""
    others = _names(cluster, kinds)
    if not others:
        return None
    return f"the cluster is in use ({others[0]} exists), so the objects of this run could not be identified"


def _installed_crds(cluster: Cluster) -> set[str]:
    return {line.partition("/")[2] for line in _names(cluster, ["crd"])}


def _list(items: Sequence[Manifest]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def uninstall(cluster: Cluster, names: Sequence[str]) -> None:
    if names:
        cluster.kubectl("delete", *names, "--ignore-not-found")


def cluster_scoped(definitions: Mapping[str, Manifest]) -> tuple[str, ...]:
    return _kinds(definitions, "Cluster")


def namespaced(definitions: Mapping[str, Manifest]) -> tuple[str, ...]:
    return _kinds(definitions, "Namespaced")


def snapshot(cluster: Cluster, kinds: Sequence[str]) -> frozenset[str]:
    """Names of all Nodes and objects of `kinds`."""
    return frozenset(_names(cluster, [NODES, *kinds]))


def restore(
    cluster: Cluster, kinds: Sequence[str], before: frozenset[str], *, spare_real_nodes: bool
) -> None:
    """Delete everything that is not in `before`, optionally except nodes with a real kubelet."""
    added = snapshot(cluster, kinds) - before
    if spare_real_nodes:
        added -= _real_nodes(cluster)
    for some in _batches(added):
        cluster.kubectl("delete", *some, "--wait=false", "--ignore-not-found")
    if added:
        _lift_finalizers(cluster, snapshot(cluster, kinds) & added)


def _real_nodes(cluster: Cluster) -> frozenset[str]:
    nodes = json.loads(cluster.kubectl("get", NODES, "-o", "json").stdout)["items"]
    return frozenset(f"node/{node['metadata']['name']}" for node in nodes if not _simulated(node))


def _simulated(node: Manifest) -> bool:
    version = node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")
    return not version or "kwok.x-k8s.io/node" in node["metadata"].get("annotations", {})


def _kinds(definitions: Mapping[str, Manifest], scope: str) -> tuple[str, ...]:
    specs = [definition["spec"] for definition in definitions.values()]
    return tuple(f"{spec['names']['plural']}.{spec['group']}" for spec in specs if spec["scope"] == scope)


def _names(cluster: Cluster, kinds: Sequence[str], *where: str) -> list[str]:
    """Names as `kind.group/name`, which kubectl accepts as arguments."""
    return cluster.kubectl("get", ",".join(kinds), "-o", "name", *where).stdout.split()


def _lift_finalizers(cluster: Cluster, names: Iterable[str], *where: str) -> None:
    for some in _batches(names):
        cluster.kubectl("patch", *some, *where, "--type=merge", NO_FINALIZERS, check=False)


def _batches(names: Iterable[str]) -> Iterable[Sequence[str]]:
    ordered = sorted(names)
    return [ordered[start : start + BATCH_SIZE] for start in range(0, len(ordered), BATCH_SIZE)]
