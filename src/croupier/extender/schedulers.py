"""How kube-scheduler gets its configuration: kubeadm, k3s, and a second one beside theirs.

kubeadm runs it as a static pod that sees no file but its kubeconfig, k3s inside of its own process, and where
somebody else keeps the control plane a second scheduler runs as a Deployment, for pods that name it. All here
is data in, data out: what is written, and when, is a person's decision.
"""

import copy
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import yaml

from croupier.api.meta import PART_OF
from croupier.extender import configuration
from croupier.extender.configuration import BadWish, Wish

KUBEADM_FOLDER: Final = "/etc/kubernetes/croupier"
KUBEADM_FILE: Final = f"{KUBEADM_FOLDER}/scheduler.yaml"
KUBEADM_KUBECONFIG: Final = "/etc/kubernetes/scheduler.conf"
KUBEADM_MANIFEST: Final = "/etc/kubernetes/manifests/kube-scheduler.yaml"
K3S_FILE: Final = "/var/lib/rancher/k3s/server/croupier-scheduler.yaml"
K3S_KUBECONFIG: Final = "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"
K3S_CONFIG: Final = "/etc/rancher/k3s/config.yaml.d/croupier.yaml"
SECOND: Final = "croupier-scheduler"
NAMESPACE: Final = "d8-gpu-operator"
CONFIG_FOLDER: Final = "/etc/croupier-scheduler"
TLS_FOLDER: Final = "/tls"
PORT: Final = 10259


class BadManifest(ValueError):
    """It is not the manifest of a kube-scheduler; the sentence says why."""


def folders(wish: Wish, file: str) -> tuple[str, ...]:
    """What a scheduler in a pod must see of its machine: folders, so that a renewed file is seen, too."""
    files = wish.files
    named = (file, *((files.authority, files.certificate, files.key) if files else ()))
    return tuple(dict.fromkeys(str(PurePosixPath(one).parent) for one in named))


def kubeadm_manifest(manifest: Any, wish: Wish, file: str) -> dict[str, Any]:
    """The static pod as it was, with our configuration. Doing it twice changes nothing more."""
    changed: dict[str, Any] = copy.deepcopy(manifest)
    container = _scheduler(changed)
    command = [word for word in container["command"] if not word.startswith("--config=")]
    container["command"] = [*command, f"--config={file}"]
    volumes = _volumes(folders(wish, file))
    kept = {one["name"] for one in volumes}
    spec = changed["spec"]
    spec["volumes"] = [*_others(spec.get("volumes"), kept), *volumes]
    mounts = [
        {"name": one["name"], "mountPath": one["hostPath"]["path"], "readOnly": True} for one in volumes
    ]
    container["volumeMounts"] = [*_others(container.get("volumeMounts"), kept), *mounts]
    return changed


def kubeadm_settings(wish: Wish, file: str) -> dict[str, Any]:
    """The same for kubeadm's own configuration: without it the next `kubeadm upgrade` forgets us."""
    extra = [
        {
            "name": one["name"],
            "hostPath": one["hostPath"]["path"],
            "mountPath": one["hostPath"]["path"],
            "readOnly": True,
            "pathType": "Directory",
        }
        for one in _volumes(folders(wish, file))
    ]
    return {"scheduler": {"extraArgs": [{"name": "config", "value": file}], "extraVolumes": extra}}


def k3s_settings(file: str) -> dict[str, Any]:
    return {"kube-scheduler-arg": [f"config={file}"]}


@dataclass(frozen=True, slots=True)
class Second:
    """A scheduler of our own beside that of the cluster."""

    image: str
    """Of the upstream kube-scheduler, of the cluster's version."""
    extender_image: str = ""
    """Of Croupier, where the extender runs in the same pod and is asked on loopback."""
    tls_secret: str = ""
    """With tls.crt, tls.key and ca.crt, where the extender is asked over the network."""
    namespace: str = NAMESPACE
    replicas: int = 1
    book: str = "InMemory"


def second(wish: Wish, wanted: Second) -> list[dict[str, Any]]:
    """Everything a second scheduler needs: its account, its rights, its configuration, itself."""
    beside = _is_beside(wish)
    if beside and not wanted.extender_image:
        raise BadWish(
            f"{wish.url} is asked within one pod: name Croupier's image with --extender-image, or "
            "the address of an extender elsewhere with --url https://..."
        )
    if not beside and not wanted.tls_secret:
        raise BadWish(f"{wish.url} needs --tls-secret: the Secret with tls.crt, tls.key and ca.crt")
    account = "croupier-extender" if beside else wish.scheduler_name
    settings = yaml.safe_dump(configuration.configuration(wish), sort_keys=False)
    accounts = [] if beside else [_made("v1", "ServiceAccount", account, wanted.namespace)]
    return [
        *accounts,
        *rights(wish.scheduler_name, account, wanted.namespace),
        {
            **_made("v1", "ConfigMap", wish.scheduler_name, wanted.namespace),
            "data": {"scheduler.yaml": settings},
        },
        _deployment(wish, wanted, account),
    ]


def rights(name: str, account: str, namespace: str) -> list[dict[str, Any]]:
    """Those of an upstream scheduler, and its own Lease, which they do not include."""
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]
    bindings = [
        {
            **_made(f"{group}/v1", "ClusterRoleBinding", f"{name}-{role.removeprefix('system:')}"),
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        }
        for role in ("system:kube-scheduler", "system:volume-scheduler")
    ]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    return [
        *bindings,
        {
            **_made(f"{group}/v1", "Role", name, namespace),
            "rules": [
                {**leases, "verbs": ["create"]},
                {**leases, "resourceNames": [name], "verbs": ["get", "update"]},
            ],
        },
        {
            **_made(f"{group}/v1", "RoleBinding", name, namespace),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": subjects,
        },
    ]


def _is_beside(wish: Wish) -> bool:
    return wish.url.startswith("http://")  # `configuration` lets that be on loopback alone


def _deployment(wish: Wish, wanted: Second, account: str) -> dict[str, Any]:
    name, beside = wish.scheduler_name, _is_beside(wish)
    labels = {"app": "croupier-extender" if beside else name, **PART_OF}
    volumes: list[dict[str, Any]] = [{"name": "configuration", "configMap": {"name": name}}]
    if not beside:
        volumes.append({"name": "tls", "secret": {"secretName": wanted.tls_secret}})
    containers = [_kube_scheduler(wanted, tls=not beside)]
    if beside:
        containers.insert(0, _extender(wish, wanted))
    spec = {
        "serviceAccountName": account,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
        "volumes": volumes,
    }
    return {
        **_made("apps/v1", "Deployment", "croupier-extender" if beside else name, wanted.namespace),
        "spec": {
            "replicas": wanted.replicas,
            "selector": {"matchLabels": {"app": labels["app"]}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _kube_scheduler(wanted: Second, *, tls: bool) -> dict[str, Any]:
    probe = {"path": "/livez", "port": PORT, "scheme": "HTTPS"}
    mounts = [{"name": "configuration", "mountPath": CONFIG_FOLDER, "readOnly": True}]
    if tls:
        mounts.append({"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True})
    return {
        "name": "kube-scheduler",
        "image": wanted.image,
        "command": ["kube-scheduler", f"--config={CONFIG_FOLDER}/scheduler.yaml", f"--secure-port={PORT}"],
        "livenessProbe": {"httpGet": probe, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {"httpGet": {**probe, "path": "/readyz"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": _LITTLE,
        "volumeMounts": mounts,
    }


def _extender(wish: Wish, wanted: Second) -> dict[str, Any]:
    listens = wish.url.removeprefix("http://").rstrip("/")
    checks = {"port": "health"}
    return {
        "name": "extender",
        "image": wanted.extender_image,
        "args": ["extender", f"--listen={listens}", f"--capacity-manager={wanted.book}", "--health=:8080"],
        "ports": [{"name": "health", "containerPort": 8080}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", **checks},
            "periodSeconds": 10,
            "failureThreshold": 6,
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", **checks}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": _LITTLE,
    }


_LITTLE: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def _made(version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": {**meta, "labels": {**PART_OF}}}


def _volumes(paths: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"name": f"croupier-{at}" if at else "croupier", "hostPath": {"path": path, "type": "Directory"}}
        for at, path in enumerate(paths)
    ]


def _others(listed: Any, names: set[str]) -> list[Any]:
    return [one for one in listed or () if one["name"] not in names]


def _scheduler(manifest: Any) -> dict[str, Any]:
    containers = manifest.get("spec", {}).get("containers", []) if isinstance(manifest, dict) else []
    for one in containers:
        if one.get("command") and str(one["command"][0]).endswith("kube-scheduler"):
            found: dict[str, Any] = one
            return found
    raise BadManifest(f"no container of it starts kube-scheduler: look for {KUBEADM_MANIFEST}")
