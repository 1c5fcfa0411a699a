"""The kubelet of a real node: settings that let it run beside anything else on a machine.

It serves on the bridge's address, which no other kubelet has, so its ports are
the usual ones. It changes no kernel setting and no iptables rule of the machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from croupier.lab import containerd
from croupier.lab.certificates import Pair

ROOT = "/var/lib/kubelet"
PORT = 10250

# What a kubelet would write into the machine's kernel; it only compares when it finds these values.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Who the node is and where its parts are."""

    name: str
    address: str
    cgroup: str
    authority: Path
    serving: Pair
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Of a KubeletConfiguration, over what stands here."""


def configuration(settings: Settings) -> str:
    """The KubeletConfiguration file."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            **_serving(settings),
            **_runtime(settings),
            **_patience(),
            **settings.extra,
        },
        sort_keys=False,
    )


def _serving(settings: Settings) -> dict[str, object]:
    return {
        "address": settings.address,
        "port": PORT,
        "healthzBindAddress": settings.address,
        "tlsCertFile": str(settings.serving.certificate),
        "tlsPrivateKeyFile": str(settings.serving.key),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(settings.authority)},
        },
        "authorization": {"mode": "Webhook"},
    }


def _runtime(settings: Settings) -> dict[str, object]:
    return {
        "containerRuntimeEndpoint": f"unix://{containerd.SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{settings.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,
        "volumePluginDir": f"{ROOT}/volume-plugins",  # the default is a folder in /usr
    }


def _patience() -> dict[str, object]:
    """Labs live on small, full machines: act quickly, evict late, never delete an image nobody can pull."""
    return {
        "nodeStatusUpdateFrequency": "1s",  # devices reach allocatable only with this loop
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
            "imagefs.inodesFree": "1%",
        },
    }


def arguments(settings: Settings, *, configuration_file: Path, kubeconfig: Path) -> tuple[str, ...]:
    return (
        f"--config={configuration_file}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={settings.name}",
        f"--node-ip={settings.address}",
        f"--root-dir={ROOT}",
    )
