"""Nodes and Pods of realistic size: several KB each."""

from typing import Any

Raw = dict[str, Any]

NAMESPACES = tuple(f"team-{number}" for number in range(10))
TYPES = ("Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready", "PodScheduled")
WHEN = "2026-01-01T00:00:00Z"


def node(number: int) -> Raw:
    name = f"gpu-worker-{number}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "h100x8",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{bit}": "true" for bit in range(20)},
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {"podCIDR": "10.0.0.0/24"}}


def node_status(number: int) -> Raw:
    amounts = {
        "cpu": "64",
        "memory": "512Gi",
        "pods": "110",
        "nvidia.com/gpu": "8",
        "ephemeral-storage": "1Ti",
    }
    kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": f"Kubelet{kind}",
            "message": f"a message of realistic length about the condition {kind}",
            "lastHeartbeatTime": WHEN,
            "lastTransitionTime": WHEN,
        }
        for kind in kinds
    ]
    images = [
        {"names": [f"registry.example/library/image-{n}:v{number % 7}"], "sizeBytes": 10**8 + n}
        for n in range(10)
    ]
    return {
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images}
    }


def pod(number: int, nodes: int) -> Raw:
    labels = {"app.kubernetes.io/name": f"job-{number % 50}", "app.kubernetes.io/instance": f"run-{number}"}
    return {
        "metadata": {
            "name": f"job-{number % 50}-{number}",
            "labels": {**labels, "tier": "batch", "pod-template-hash": "7d4b9c8f6d"},
            "annotations": {
                "checksum/config": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": f"job-{number % 50}",
                    "uid": f"00000000-0000-0000-0000-{number:012d}",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "nodeName": f"gpu-worker-{number % nodes}",
            "containers": [_container("trainer", gpus=1), _container("exporter", gpus=0)],
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "config", "configMap": {"name": "settings"}},
            ],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }


def _container(name: str, *, gpus: int) -> Raw:
    amounts = {"cpu": "2", "memory": "8Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return {
        "name": name,
        "image": f"registry.example/team/{name}:2026.1",
        "args": ["--config=/etc/settings/config.yaml", "--verbose"],
        "env": [{"name": f"SETTING_{n}", "value": f"a value of some length, number {n}"} for n in range(8)],
        "ports": [{"containerPort": 8080, "name": "http"}],
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "config", "mountPath": "/etc/settings"},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
        "livenessProbe": {"httpGet": {"path": "/live", "port": "http"}, "periodSeconds": 10},
    }


def pod_status(number: int) -> Raw:
    address = f"10.{number // 65536 % 256}.{number // 256 % 256}.{number % 256}"
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": WHEN} for kind in TYPES]
    running = [
        {
            "name": name,
            "ready": True,
            "started": True,
            "restartCount": 0,
            "image": f"registry.example/team/{name}:2026.1",
            "imageID": f"registry.example/team/{name}@sha256:{'0123456789abcdef' * 4}",
            "containerID": f"containerd://{'fedcba9876543210' * 4}",
            "state": {"running": {"startedAt": WHEN}},
        }
        for name in ("trainer", "exporter")
    ]
    return {
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "hostIP": "10.0.0.1",
            "startTime": WHEN,
            "conditions": conditions,
            "containerStatuses": running,
        }
    }
