"""A view of the file system that only the real node has.

Kubelets look for device plugins in /var/lib/kubelet/device-plugins whatever
their settings say, shims keep sockets in /run/containerd, and log links go to
/var/log/containers: two nodes on one machine need those paths twice. So the
node's programs live in a mount namespace where these paths are folders of the
lab. With the last of them the namespace goes, and every mount a pod ever had
with it: nothing is left to unmount.

One process, the keeper, does nothing but hold the namespace, so that containerd
and the kubelet can be killed and started again within it.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from croupier.lab import process
from croupier.lab.errors import with_log
from croupier.lab.process import Process, Program

READY_WITHIN = 10.0
POLL = 0.02

# Mounts made outside are seen inside, never the other way; within, pods can share theirs as they may ask.
_KEEP = """
set -e
ready=$1; shift
mount --make-rshared /
while [ $# -gt 1 ]; do mount --bind "$1" "$2"; shift 2; done
: > "$ready"
exec sleep infinity
"""


def keeper(name: str, binds: Mapping[Path, Path], *, ready: Path, env: Mapping[str, str]) -> Program:
    """The program that makes the namespace: each key of `binds` is seen where its value says."""
    pairs = [str(path) for bind in binds.items() for path in bind]
    argv = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", _KEEP, name, str(ready), *pairs)
    return Program(name, argv, env)


def prepare(binds: Mapping[Path, Path]) -> None:
    """Both ends of a bind must exist. Empty folders made here stay: another lab may be mounted on them."""
    for source, target in binds.items():
        source.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.mkdir(parents=True)


async def entered(keeper_process: Process, ready: Path) -> tuple[str, ...]:
    """Wait until the namespace is complete; the words to put before a command so that it runs inside."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_WITHIN
    while not _is_there(ready):
        if not process.alive(keeper_process) or loop.time() > deadline:
            raise with_log("The real node's mount namespace could not be made.", Path(keeper_process.log))
        await asyncio.sleep(POLL)
    return entering(keeper_process.pid)


def _is_there(path: Path) -> bool:
    return path.exists()


def entering(keeper_pid: int) -> tuple[str, ...]:
    return ("nsenter", f"--mount=/proc/{keeper_pid}/ns/mnt", "--")
