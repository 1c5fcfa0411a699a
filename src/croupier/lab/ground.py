"""Where a lab's real node keeps its things.

All names are derived from the lab's folder and from nothing else: whoever knows
the folder can find and remove what a crashed lab left, without any record.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from croupier.lab import kubelet

MARK = "CROUPIER_REAL_NODE"
"""The environment variable by which the node's processes, and what they start, are found again."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where one lab's real node keeps its things."""

    lab: Path

    @property
    def id(self) -> str:
        return hashlib.sha256(str(self.lab).encode()).hexdigest()[:8]

    @property
    def state(self) -> Path:
        return self.lab / "node"

    @property
    def run(self) -> Path:
        """Sockets live here: their paths may have no more than 107 characters."""
        return Path("/run", f"croupier-{self.id}")

    @property
    def socket(self) -> Path:
        return self.run / "containerd" / "containerd.sock"

    def arguments(self, part: str) -> Path:
        """The file with the command line of a part, for starting it again."""
        return self.state / f"{part}.arguments.json"

    @property
    def cgroup(self) -> str:
        return f"croupier-{self.id}"

    @property
    def cdi(self) -> Path:
        """Put CDI specifications here; the node sees them in /var/run/cdi."""
        return self.state / "cdi"

    @property
    def plugins(self) -> Path:
        """The kubelet's sockets as this side sees them: device-plugins, plugins_registry, pod-resources."""
        return self.run / "kubelet"

    @property
    def mark(self) -> dict[str, str]:
        return {MARK: str(self.lab)}

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
