"""Configuration of the real node's kubelet, so that it can share the machine.

It listens on the address of the bridge, so it can use the default ports. It changes no kernel setting and no
iptables rule of the machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from croupier_lab import containerd
from croupier_lab.certificates import KeyPair

ROOT = "/var/lib/kubelet"
PORT = 10250
MAX_NAMESERVERS = 3
"""The resolver of a container reads no more."""

# Kernel settings that a kubelet writes; it does not write them if they already have these values.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """Name, address and paths of the node."""

    name: str
    address: str
    cgroup: str
    authority: Path
    serving: KeyPair
    nameservers: tuple[str, ...] = ()
    """DNS of pods; the lab has no DNS server of its own. Without any, the kubelet warns about every pod."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the KubeletConfiguration that override the ones below."""


def configuration(settings: KubeletOptions) -> str:
    """The KubeletConfiguration file."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            **_serving(settings),
            **_runtime(settings),
            **_thresholds(),
            **settings.extra,
        },
        sort_keys=False,
    )


def nameservers(resolv_conf: str) -> tuple[str, ...]:
    """The DNS servers of the machine, for its pods."""
    lines = (line.split() for line in resolv_conf.splitlines())
    servers = (words[1] for words in lines if len(words) > 1 and words[0] == "nameserver")
    return tuple(servers)[:MAX_NAMESERVERS]


def _serving(settings: KubeletOptions) -> dict[str, object]:
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


def _runtime(settings: KubeletOptions) -> dict[str, object]:
    return {
        "containerRuntimeEndpoint": f"unix://{containerd.SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{settings.cgroup}",
        "clusterDNS": list(settings.nameservers),
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,
        "volumePluginDir": f"{ROOT}/volume-plugins",  # the default is a folder in /usr
    }


def _thresholds() -> dict[str, object]:
    """For small, full machines: update quickly, evict late, never delete images (there is no registry)."""
    return {
        "nodeStatusUpdateFrequency": "1s",  # devices become allocatable with the status update
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
            "imagefs.inodesFree": "1%",
        },
    }


def arguments(settings: KubeletOptions, *, configuration_file: Path, kubeconfig: Path) -> tuple[str, ...]:
    return (
        f"--config={configuration_file}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={settings.name}",
        f"--node-ip={settings.address}",
        f"--root-dir={ROOT}",
    )
