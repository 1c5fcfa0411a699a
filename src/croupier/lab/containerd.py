"""containerd, configured for one lab and blind to any other on the machine.

Its paths are the usual ones (/run/containerd, /var/run/cdi ...) as seen inside
the node's mount namespace, where they are folders of the lab.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from croupier.lab import image
from croupier.lab.command import output
from croupier.lab.errors import LabError

SOCKET = "/run/containerd/containerd.sock"
NAMESPACE = "k8s.io"
OVERLAY = "overlayfs"
COPIES = "native"
"""Works anywhere, and copies a whole image for every container."""

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
    """What can be used for containers whose files are in `folder`; an overlay cannot lie on another one."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        parts = {name: Path(place, name) for name in ("lowerdir", "upperdir", "workdir", "merged")}
        for one in parts.values():
            one.mkdir()
        where = str(parts.pop("merged"))
        options = ",".join(f"{name}={one}" for name, one in parts.items())
        try:  # in a mount namespace of its own, so that nothing is left whatever happens
            await output("unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, where)
        except LabError:
            return COPIES
    return OVERLAY


def configuration(
    *, root: Path, network: Path, shim: Path, plugins: Sequence[str], snapshotter: str = COPIES
) -> str:
    """The configuration file: state in `root`, pods' networks from the folder `network`."""
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


def chosen(configured: str) -> str:
    """The snapshotter a configuration file names."""
    return OVERLAY if f"snapshotter = {_quoted(OVERLAY)}" in configured else COPIES


async def load(ctr: tuple[str, ...], archive: Path, snapshotter: str = COPIES) -> None:
    """Load an archive, so that pods find its image without any registry. `ctr` runs inside the node."""
    await output(*ctr, "--address", SOCKET, "--namespace", NAMESPACE, *_import(archive, snapshotter))


def _import(archive: Path, snapshotter: str) -> tuple[str, ...]:
    # `--local`: version 2.4 otherwise fails for want of a platform to unpack.
    return ("images", "import", "--local", "--snapshotter", snapshotter, str(archive.absolute()))
