"""The parent cgroup of everything the real node's kubelet starts.

It separates the lab's pods from those of another kubelet on the machine, and contains all processes to kill
when the node is removed. Supports cgroup v1 (also hybrid) and v2.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from croupier_lab.errors import LabError

MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
REMOVE_TIMEOUT = 10.0
POLL = 0.02


def create(name: str, mount: Path = MOUNT) -> None:
    """Create the cgroup in every hierarchy, with the controllers a kubelet requires."""
    unified = mount / "cgroup.subtree_control"
    if unified.exists():
        _enable(unified, (mount / "cgroup.controllers").read_text().split())
    for hierarchy in hierarchies(mount):
        (hierarchy / name).mkdir(exist_ok=True)


def _enable(subtree: Path, available: list[str]) -> None:
    enabled = subtree.read_text().split()
    missing = [name for name in CONTROLLERS if name in available and name not in enabled]
    for controller in missing:
        try:
            subtree.write_text(f"+{controller}")
        except OSError as error:
            raise LabError(
                f"The cgroup controller {controller!r} cannot be enabled in {subtree} ({error.strerror}); a "
                f"real node needs it: move the processes of {subtree.parent} into a child cgroup, or use "
                "another machine."
            ) from error


def hierarchies(mount: Path = MOUNT) -> tuple[Path, ...]:
    """The roots of all hierarchies: the mount point (v2), or one folder per controller (v1)."""
    if (mount / "cgroup.procs").exists():
        return (mount,)
    return tuple(sorted({p.resolve() for p in mount.iterdir() if (p / "cgroup.procs").exists()}))


async def remove(name: str, mount: Path = MOUNT) -> None:
    """Kill every process in the cgroup and remove it; does nothing if there is none."""
    deadline = asyncio.get_running_loop().time() + REMOVE_TIMEOUT
    while groups := [group for root in hierarchies(mount) for group in _deepest_first(root / name)]:
        for pid in {pid for group in groups for pid in _processes(group)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for group in groups:
            with contextlib.suppress(OSError):  # busy until its processes have ended; retried
                group.rmdir()
        if asyncio.get_running_loop().time() > deadline:
            raise LabError(f"The cgroup {groups[-1]} cannot be removed: its processes do not end.")
        await asyncio.sleep(POLL)


def _deepest_first(group: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(group, topdown=False):
        yield Path(folder)


def _processes(group: Path) -> list[int]:
    try:
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []
