"""The mount namespace of the real node.

Kubelets always use /var/lib/kubelet/device-plugins, shims keep sockets in /run/containerd, and log links go
to /var/log/containers: two nodes on one machine need separate versions of these paths. So the programs of
the node run in a mount namespace in which these paths are folders of the lab. The namespace and all its
mounts disappear with its last process.

A separate process holds the namespace, so that containerd and the kubelet can be restarted in it.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from croupier_lab import process
from croupier_lab.errors import with_log
from croupier_lab.process import LabProcess, Program

READY_TIMEOUT = 10.0
POLL = 0.02

# Mounts propagate into the namespace but not out of it; inside, pods can use any mount propagation.
_HOLD_SCRIPT = """
set -e
ready=$1; shift
mount --make-rshared /
while [ $# -gt 1 ]; do mount --bind "$1" "$2"; shift 2; done
: > "$ready"
exec sleep infinity
"""


def holder_program(name: str, binds: Mapping[Path, Path], *, ready: Path, env: Mapping[str, str]) -> Program:
    """The program that creates and holds the namespace: each key of `binds` is mounted at its value."""
    pairs = [str(path) for bind in binds.items() for path in bind]
    argv = (
        "unshare",
        "--mount",
        "--propagation",
        "slave",
        "sh",
        "-c",
        _HOLD_SCRIPT,
        name,
        str(ready),
        *pairs,
    )
    return Program(name, argv, env)


def prepare(binds: Mapping[Path, Path]) -> None:
    """Create both ends of each bind mount. The folders are kept: another lab may use them."""
    for source, target in binds.items():
        source.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.mkdir(parents=True)


async def wait_until_ready(keeper_process: LabProcess, ready: Path) -> tuple[str, ...]:
    """Wait until the namespace is ready; returns the command prefix that runs a program inside."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_TIMEOUT
    while not _is_there(ready):
        if not process.alive(keeper_process) or loop.time() > deadline:
            raise with_log(
                "The mount namespace of the real node could not be created.", Path(keeper_process.log)
            )
        await asyncio.sleep(POLL)
    return nsenter_prefix(keeper_process.pid)


def _is_there(path: Path) -> bool:
    return path.exists()


def nsenter_prefix(keeper_pid: int) -> tuple[str, ...]:
    return ("nsenter", f"--mount=/proc/{keeper_pid}/ns/mnt", "--")
