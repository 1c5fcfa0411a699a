"""Use a shared cluster for tests and restore its original state.

Independent of the code under test, and for every kubeconfig: with kubectl, or through `kubectl proxy` where
every test needs it.
"""

import json
import re
import secrets
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from croupier_lab import api_proxy
from croupier_lab.api_proxy import ApiProxy
from croupier_lab.cluster import Cluster

ESTABLISHED_TIMEOUT = "60s"
DELETION_TIMEOUT = "5s"
DELETION_ATTEMPTS = 10
NO_GRACE = "?gracePeriodSeconds=0"

Manifest = Mapping[str, Any]


class ServedKind(NamedTuple):
    """A kind as its objects are addressed."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str = "", name: str = "") -> str:
        root = f"/apis/{self.group}" if self.group else "/api"
        middle = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}/{self.version}{middle}/{self.plural}" + (f"/{name}" if name else "")


class ObjectName(NamedTuple):
    kind: ServedKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.plural}/{self.name}"


NAMESPACES = ServedKind("", "v1", "namespaces")
ACCOUNTS = ServedKind("", "v1", "serviceaccounts")
PODS = ServedKind("", "v1", "pods")
NODES = ServedKind("", "v1", "nodes")


def create_namespace(cluster: Cluster, wish: str) -> str:
    """Create a namespace named after `wish`, and its default service account."""
    stem = re.sub(r"[^a-z0-9]+", "-", wish.lower()).strip("-")[:40].strip("-")
    name = f"{stem or 'test'}-{secrets.token_hex(3)}"
    api = api_proxy.connect(cluster)
    api.post(NAMESPACES.path(), {"metadata": {"name": name}})
    api.post(ACCOUNTS.path(name), {"metadata": {"name": "default"}})  # the controller manager is slower
    return name


def delete_namespace(cluster: Cluster, name: str, kinds: Sequence[ServedKind] = ()) -> None:
    """Delete a namespace without waiting; removes finalizers of `kinds`, whose controllers may not run.

    Pods are deleted by force: otherwise pods of a deleted node would exist for another minute.
    """
    api = api_proxy.connect(cluster)
    for kind in (PODS, *kinds):
        api.delete(kind.path(name) + NO_GRACE)
    for kind in kinds:
        _remove_finalizers(api, kind, namespace=name)
    api.delete(NAMESPACES.path(name=name))


def install(cluster: Cluster, definitions: Mapping[str, Manifest]) -> tuple[str, ...]:
    """Install the CRDs; returns those that were not installed before."""
    wanted = list(definitions.values())
    names = [f"crd/{definition['metadata']['name']}" for definition in wanted]
    known = _installed_crds(cluster)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=_list(wanted))
    cluster.kubectl("wait", "--for=condition=Established", f"--timeout={ESTABLISHED_TIMEOUT}", *names)
    cluster.forget_kinds()
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


def existing_objects(cluster: Cluster, kinds: Sequence[ServedKind]) -> str | None:
    """Why the cluster cannot be cleaned up afterwards: it has objects of `kinds`. None if it has none."""
    others = snapshot(cluster, kinds)
    if not others:
        return None
    return f"the cluster is in use ({min(others)} exists), so the objects of this run could not be identified"


def _installed_crds(cluster: Cluster) -> set[str]:
    listed = cluster.kubectl("get", "crd", "-o", "name").stdout.split()
    return {line.partition("/")[2] for line in listed}


def _list(items: Sequence[Manifest]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def uninstall(cluster: Cluster, names: Sequence[str]) -> None:
    """Delete the CRDs, and change those that remain.

    If a CRD is deleted just after its creation ("storage is (re)initializing"), the API server may not try to
    finalize it again for minutes, unless it changes.
    """
    if not names:
        return
    cluster.kubectl("delete", *names, "--ignore-not-found", "--wait=false")
    gone = ("wait", *names, "--for=delete")
    for attempt in range(DELETION_ATTEMPTS):
        if cluster.kubectl(*gone, f"--timeout={DELETION_TIMEOUT}", check=False).returncode == 0:
            return
        cluster.kubectl("annotate", *names, "--overwrite", f"croupier.lab/attempt={attempt}", check=False)
    cluster.kubectl(*gone, f"--timeout={DELETION_TIMEOUT}")


def cluster_scoped(definitions: Mapping[str, Manifest]) -> tuple[ServedKind, ...]:
    return _kinds(definitions, "Cluster")


def namespaced(definitions: Mapping[str, Manifest]) -> tuple[ServedKind, ...]:
    return _kinds(definitions, "Namespaced")


def snapshot(cluster: Cluster, kinds: Sequence[ServedKind]) -> frozenset[ObjectName]:
    """Names of all objects of `kinds`."""
    api = api_proxy.connect(cluster)
    return frozenset(
        ObjectName(kind, item["metadata"]["name"]) for kind in kinds for item in api.items(kind.path())
    )


def restore(
    cluster: Cluster, kinds: Sequence[ServedKind], before: frozenset[ObjectName], *, spare_real_nodes: bool
) -> None:
    """Delete everything that is not in `before`, optionally except nodes with a real kubelet."""
    api = api_proxy.connect(cluster)
    added = snapshot(cluster, kinds) - before
    if spare_real_nodes:
        added -= _real_nodes(api)
    for kind, name in sorted(added):
        api.delete(kind.path(name=name))
    for kind in sorted({kind for kind, _ in added}):
        _remove_finalizers(api, kind, {name for other, name in added if other == kind})


def _real_nodes(api: ApiProxy) -> frozenset[ObjectName]:
    nodes = api.items(NODES.path())
    return frozenset(ObjectName(NODES, node["metadata"]["name"]) for node in nodes if not _simulated(node))


def _simulated(node: Manifest) -> bool:
    version = node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")
    return not version or "kwok.x-k8s.io/node" in node["metadata"].get("annotations", {})


def _kinds(definitions: Mapping[str, Manifest], scope: str) -> tuple[ServedKind, ...]:
    specs = [definition["spec"] for definition in definitions.values()]
    return tuple(
        ServedKind(spec["group"], spec["versions"][0]["name"], spec["names"]["plural"])
        for spec in specs
        if spec["scope"] == scope
    )


def _remove_finalizers(
    api: ApiProxy, kind: ServedKind, names: Set[str] | None = None, *, namespace: str = ""
) -> None:
    """From these objects, or all that are left."""
    for item in api.items(kind.path(namespace)):
        meta = item["metadata"]
        if meta.get("finalizers") and (names is None or meta["name"] in names):
            api.patch(kind.path(namespace, meta["name"]), {"metadata": {"finalizers": None}})
