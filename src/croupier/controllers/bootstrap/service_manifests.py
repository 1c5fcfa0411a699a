"""Manifests of the service pods for nodes without other labelling or monitoring.

They are pods, not a DaemonSet, because the nodes are chosen individually and may change every minute. The
GPUNodeInventory of the node owns its pods.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from croupier.api.gpu import GPUNodeInventory
from croupier.api.kinds import GPU_NODE_INVENTORIES
from croupier.controllers.shared import apply
from croupier.core.nodes.bootstrap import (
    COMMANDS,
    DCGM,
    ENVIRONMENT,
    FEATURES_DIR,
    GFD,
    IMAGE,
    SERVICE,
    ServiceKind,
)
from croupier.kube.client.resource import Raw

METRICS_PORT: Final = 9400
_MAX_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class ServiceImages:
    """Images of the services. A service without an image is not started."""

    images: Mapping[ServiceKind, str] = field(default_factory=dict)
    runtime_class: str = ""
    """The RuntimeClass that gives containers access to the cards, if it is not the default."""


def name(kind: ServiceKind, node: str) -> str:
    full = f"{kind}-{node}"
    if len(full) <= _MAX_NAME:
        return full
    return f"{full[: _MAX_NAME - 17]}-{hashlib.sha256(node.encode()).hexdigest()[:16]}"


def body(kind: ServiceKind, inventory: GPUNodeInventory, images: ServiceImages) -> Raw:
    node, image = inventory.metadata.name, images.images[kind]
    spec: Raw = {
        "nodeName": node,
        "restartPolicy": "Always",
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": kind, "image": image, **_command(kind), **_container(kind)}],
    }
    if kind == GFD:
        spec["volumes"] = [
            {"name": "features", "hostPath": {"path": FEATURES_DIR, "type": "DirectoryOrCreate"}}
        ]
    if images.runtime_class:
        spec["runtimeClassName"] = images.runtime_class
    return {
        "metadata": {
            "name": name(kind, node),
            "labels": {SERVICE: kind, "app.kubernetes.io/name": kind},
            "annotations": {IMAGE: image},
            "ownerReferences": [
                {**apply.owner_reference(GPU_NODE_INVENTORIES, inventory), "controller": True}
            ],
        },
        "spec": spec,
    }


def _command(kind: ServiceKind) -> dict[str, Any]:
    return {"command": list(COMMANDS[kind])} if kind in COMMANDS else {}


def _container(kind: ServiceKind) -> dict[str, Any]:
    if kind == DCGM:
        port = {"name": "metrics", "containerPort": METRICS_PORT}
        more: dict[str, Any] = {
            "ports": [port],
            "readinessProbe": {"httpGet": {"path": "/health", "port": "metrics"}, "periodSeconds": 10},
            "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
        }
    else:
        more = {
            "volumeMounts": [{"name": "features", "mountPath": FEATURES_DIR}],
            "securityContext": {"privileged": True},
        }
    return {"env": [{"name": key, "value": value} for key, value in ENVIRONMENT.items()], **more}
