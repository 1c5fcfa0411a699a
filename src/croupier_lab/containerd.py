"""Configuration of the lab's own containerd.

It uses the default paths (/run/containerd, /var/run/cdi ...), which are folders of the lab inside the node's
mount namespace.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from croupier_lab import image
from croupier_lab.command import output
from croupier_lab.errors import LabError

SOCKET = "/run/containerd/containerd.sock"
NAMESPACE = "k8s.io"
OVERLAY = "overlayfs"
NATIVE = "native"
"""Works on every file system, but copies the whole image for every container."""

_CONFIGURATION = """\
version = 3
imports = []
root = {root}
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
address = {socket}

[plugins.'io.containerd.cri.v1.images']
snapshotter = {snapshotter}

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = {sandbox}

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = {plugins}
conf_dir = {network}

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = {shim}

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


async def snapshotter(folder: Path) -> str:
    """The snapshotter to use in `folder`: overlayfs cannot be nested on some file systems."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        parts = {name: Path(place, name) for name in ("lowerdir", "upperdir", "workdir", "merged")}
        for path in parts.values():
            path.mkdir()
        where = str(parts.pop("merged"))
        options = ",".join(f"{name}={path}" for name, path in parts.items())
        try:  # in its own mount namespace, so that the mount disappears in any case
            await output("unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, where)
        except LabError:
            return NATIVE
    return OVERLAY


def configuration(
    *, root: Path, network: Path, shim: Path, plugins: Sequence[str], snapshotter: str = NATIVE
) -> str:
    """The configuration file: state in `root`, CNI configuration in the folder `network`."""
    return _CONFIGURATION.format(
        root=_quoted(root),
        snapshotter=_quoted(snapshotter),
        socket=_quoted(SOCKET),
        sandbox=_quoted(image.PAUSE),
        plugins=json.dumps(plugins),
        network=_quoted(network),
        shim=_quoted(shim),
    )


def _quoted(value: object) -> str:
    return json.dumps(str(value))  # a JSON string is a TOML basic string


def snapshotter_of(configured: str) -> str:
    """The snapshotter in a configuration file."""
    return OVERLAY if f"snapshotter = {_quoted(OVERLAY)}" in configured else NATIVE


async def load(ctr: tuple[str, ...], archive: Path, snapshotter: str = NATIVE) -> None:
    """Import an image archive. `ctr` is the command prefix inside the node."""
    await output(*ctr, "--address", SOCKET, "--namespace", NAMESPACE, *_import(archive, snapshotter))


def _import(archive: Path, snapshotter: str) -> tuple[str, ...]:
    # Without `--local`, version 2.4 fails because it has no platform to unpack.
    return ("images", "import", "--local", "--snapshotter", snapshotter, str(archive.absolute()))
