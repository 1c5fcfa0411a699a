"""Paths and names of a lab's real node.

All names are derived from the folder of the lab, so that the remains of a crashed lab can be removed
without its record.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from croupier_lab import kubelet

ENV_VARIABLE = "CROUPIER_REAL_NODE"
"""Environment variable that identifies the node's processes and their children."""


@dataclass(frozen=True, slots=True)
class RealNodePaths:
    """Paths and names of one lab's real node."""

    lab: Path

    @property
    def id(self) -> str:
        return hashlib.sha256(str(self.lab).encode()).hexdigest()[:8]

    @property
    def state(self) -> Path:
        return self.lab / "node"

    @property
    def run(self) -> Path:
        """Folder for sockets, whose paths are limited to 107 characters."""
        return Path("/run", f"croupier-{self.id}")

    @property
    def socket(self) -> Path:
        return self.run / "containerd" / "containerd.sock"

    def arguments(self, part: str) -> Path:
        """File with the command line of a component, to restart it."""
        return self.state / f"{part}.arguments.json"

    @property
    def cgroup(self) -> str:
        return f"croupier-{self.id}"

    @property
    def cdi(self) -> Path:
        """Folder for CDI files; the node sees it as /var/run/cdi."""
        return self.state / "cdi"

    @property
    def plugins(self) -> Path:
        """The kubelet's socket folders outside of the namespace: device-plugins, pod-resources, ..."""
        return self.run / "kubelet"

    @property
    def mark(self) -> dict[str, str]:
        return {ENV_VARIABLE: str(self.lab)}

    @property
    def ready(self) -> Path:
        return self.run / "namespace-ready"

    @property
    def binds(self) -> dict[Path, Path]:
        settings = {
            self.state / "kernel" / name: Path("/proc/sys") / name
            for name in kubelet.KERNEL_SETTINGS
            if Path("/proc/sys", name).exists()
        }
        return {
            self.state / "kubelet": Path(kubelet.ROOT),
            self.run / "containerd": Path("/run/containerd"),
            self.cdi: Path("/var/run/cdi"),
            self.state / "cni": Path("/var/lib/cni"),
            self.state / "pod-logs": Path("/var/log/pods"),
            self.state / "log-links": Path("/var/log/containers"),
            **settings,
        }
