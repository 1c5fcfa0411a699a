"""Manifests that configure kube-scheduler for the extender: kubeadm, k3s, or a second scheduler.

kubeadm runs the scheduler as a static pod that can read only its kubeconfig; k3s runs it in its own process.
On a managed control plane a second scheduler runs as a Deployment, for pods that name it. This module only
builds the manifests; it writes nothing.
"""

import copy
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import yaml

from croupier.api.meta import PART_OF
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.ops import scheduler_config
from croupier.ops.scheduler_config import InvalidSchedulerOptions, SchedulerConfigOptions

KUBEADM_FOLDER: Final = "/etc/kubernetes/croupier"
KUBEADM_FILE: Final = f"{KUBEADM_FOLDER}/scheduler.yaml"
KUBEADM_KUBECONFIG: Final = "/etc/kubernetes/scheduler.conf"
KUBEADM_MANIFEST: Final = "/etc/kubernetes/manifests/kube-scheduler.yaml"
K3S_FILE: Final = "/var/lib/rancher/k3s/server/croupier-scheduler.yaml"
K3S_KUBECONFIG: Final = "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"
KUBECONFIGS: Final = {"kubeadm": KUBEADM_KUBECONFIG, "k3s": K3S_KUBECONFIG}
"""The kubeconfig to put into the file: kube-scheduler ignores --kubeconfig when --config is set."""
K3S_CONFIG: Final = "/etc/rancher/k3s/config.yaml.d/croupier.yaml"
SECOND_SCHEDULER_NAME: Final = "croupier-scheduler"
"""The name of the second scheduler and of its Lease."""
CONFIG_FOLDER: Final = "/etc/croupier-scheduler"
TLS_FOLDER: Final = "/tls"
PORT: Final = 10259


class InvalidManifest(ValueError):
    """The manifest does not run kube-scheduler; the message says why."""


def mounted_folders(options: SchedulerConfigOptions, file: str) -> tuple[str, ...]:
    """Host folders that the scheduler's pod must mount: folders, so that renewed files are visible."""
    files = options.files
    named = (file, *((files.authority, files.certificate, files.key) if files else ()))
    return tuple(dict.fromkeys(str(PurePosixPath(path).parent) for path in named))


def kubeadm_manifest(manifest: Any, options: SchedulerConfigOptions, file: str) -> dict[str, Any]:
    """The static pod with our configuration; idempotent."""
    changed: dict[str, Any] = copy.deepcopy(manifest)
    container = _scheduler(changed)
    command = [word for word in container["command"] if not word.startswith("--config=")]
    container["command"] = [*command, f"--config={file}"]
    volumes = _volumes(mounted_folders(options, file))
    names = {volume["name"] for volume in volumes}
    spec = changed["spec"]
    spec["volumes"] = [*_others(spec.get("volumes"), names), *volumes]
    mounts = [
        {"name": volume["name"], "mountPath": volume["hostPath"]["path"], "readOnly": True}
        for volume in volumes
    ]
    container["volumeMounts"] = [*_others(container.get("volumeMounts"), names), *mounts]
    return changed


def kubeadm_settings(options: SchedulerConfigOptions, file: str) -> dict[str, Any]:
    """The same in kubeadm's ClusterConfiguration; otherwise `kubeadm upgrade` would remove it."""
    extra = [
        {
            "name": volume["name"],
            "hostPath": volume["hostPath"]["path"],
            "mountPath": volume["hostPath"]["path"],
            "readOnly": True,
            "pathType": "Directory",
        }
        for volume in _volumes(mounted_folders(options, file))
    ]
    return {"scheduler": {"extraArgs": [{"name": "config", "value": file}], "extraVolumes": extra}}


def k3s_settings(file: str) -> dict[str, Any]:
    return {"kube-scheduler-arg": [f"config={file}"]}


@dataclass(frozen=True, slots=True)
class SecondScheduler:
    """Options of a second scheduler in addition to the cluster's own."""

    image: str
    """Image of the upstream kube-scheduler, in the cluster's version."""
    extender_image: str = ""
    """Image of Croupier, if the extender runs in the same pod and listens on loopback."""
    tls_secret: str = ""
    """Secret with tls.crt, tls.key and ca.crt, if the extender is reached over the network."""
    namespace: str = DEFAULT_NAMESPACE
    replicas: int = 1
    capacity_manager: str = "InMemory"


def second_scheduler(options: SchedulerConfigOptions, scheduler: SecondScheduler) -> list[dict[str, Any]]:
    """All objects of a second scheduler: ServiceAccount, RBAC, ConfigMap and Deployment."""
    in_same_pod = _in_same_pod(options)
    if in_same_pod and not scheduler.extender_image:
        raise InvalidSchedulerOptions(
            f"{options.url} is a loopback address, so the extender must run in the scheduler's pod: set "
            "Croupier's image with --extender-image, or use an extender elsewhere with --url https://..."
        )
    if not in_same_pod and not scheduler.tls_secret:
        raise InvalidSchedulerOptions(
            f"{options.url} needs --tls-secret: the Secret with tls.crt, tls.key and ca.crt"
        )
    account = "croupier-extender" if in_same_pod else options.scheduler_name
    settings = yaml.safe_dump(scheduler_config.configuration(options), sort_keys=False)
    accounts = [] if in_same_pod else [_object("v1", "ServiceAccount", account, scheduler.namespace)]
    return [
        *accounts,
        *rbac(options.scheduler_name, account, scheduler.namespace),
        {
            **_object("v1", "ConfigMap", options.scheduler_name, scheduler.namespace),
            "data": {"scheduler.yaml": settings},
        },
        _deployment(options, scheduler, account),
    ]


def rbac(name: str, account: str, namespace: str) -> list[dict[str, Any]]:
    """The roles of the upstream scheduler, and access to its own Lease."""
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]
    bindings = [
        {
            **_object(f"{group}/v1", "ClusterRoleBinding", f"{name}-{role.removeprefix('system:')}"),
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        }
        for role in ("system:kube-scheduler", "system:volume-scheduler")
    ]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    return [
        *bindings,
        {
            **_object(f"{group}/v1", "Role", name, namespace),
            "rules": [
                {**leases, "verbs": ["create"]},
                {**leases, "resourceNames": [name], "verbs": ["get", "update"]},
            ],
        },
        {
            **_object(f"{group}/v1", "RoleBinding", name, namespace),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": subjects,
        },
    ]


def _in_same_pod(options: SchedulerConfigOptions) -> bool:
    return options.url.startswith("http://")  # `configuration` allows http only on loopback


def _deployment(options: SchedulerConfigOptions, scheduler: SecondScheduler, account: str) -> dict[str, Any]:
    name, in_same_pod = options.scheduler_name, _in_same_pod(options)
    labels = {"app": "croupier-extender" if in_same_pod else name, **PART_OF}
    volumes: list[dict[str, Any]] = [{"name": "configuration", "configMap": {"name": name}}]
    if not in_same_pod:
        volumes.append({"name": "tls", "secret": {"secretName": scheduler.tls_secret}})
    containers = [_kube_scheduler(scheduler, tls=not in_same_pod)]
    if in_same_pod:
        containers.insert(0, _extender(options, scheduler))
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
        **_object("apps/v1", "Deployment", "croupier-extender" if in_same_pod else name, scheduler.namespace),
        "spec": {
            "replicas": scheduler.replicas,
            "selector": {"matchLabels": {"app": labels["app"]}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _kube_scheduler(scheduler: SecondScheduler, *, tls: bool) -> dict[str, Any]:
    probe = {"path": "/livez", "port": PORT, "scheme": "HTTPS"}
    mounts = [{"name": "configuration", "mountPath": CONFIG_FOLDER, "readOnly": True}]
    if tls:
        mounts.append({"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True})
    return {
        "name": "kube-scheduler",
        "image": scheduler.image,
        "command": ["kube-scheduler", f"--config={CONFIG_FOLDER}/scheduler.yaml", f"--secure-port={PORT}"],
        "livenessProbe": {"httpGet": probe, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {"httpGet": {**probe, "path": "/readyz"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": _RESTRICTED,
        "volumeMounts": mounts,
    }


def _extender(options: SchedulerConfigOptions, scheduler: SecondScheduler) -> dict[str, Any]:
    listens = options.url.removeprefix("http://").rstrip("/")
    checks = {"port": "health"}
    return {
        "name": "extender",
        "image": scheduler.extender_image,
        "args": [
            "extender",
            f"--listen={listens}",
            f"--capacity-manager={scheduler.capacity_manager}",
            "--health=:8080",
        ],
        "ports": [{"name": "health", "containerPort": 8080}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", **checks},
            "periodSeconds": 10,
            "failureThreshold": 6,
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", **checks}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": _RESTRICTED,
    }


_RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def _object(version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": {**meta, "labels": {**PART_OF}}}


def _volumes(paths: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"name": f"croupier-{at}" if at else "croupier", "hostPath": {"path": path, "type": "Directory"}}
        for at, path in enumerate(paths)
    ]


def _others(listed: Any, names: set[str]) -> list[Any]:
    return [entry for entry in listed or () if entry["name"] not in names]


def _scheduler(manifest: Any) -> dict[str, Any]:
    containers = manifest.get("spec", {}).get("containers", []) if isinstance(manifest, dict) else []
    for container in containers:
        if container.get("command") and str(container["command"][0]).endswith("kube-scheduler"):
            scheduler: dict[str, Any] = container
            return scheduler
    raise InvalidManifest(f"no container of the manifest runs kube-scheduler: use {KUBEADM_MANIFEST}")
