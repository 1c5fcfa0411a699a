"""The one control group under which everything the real node's kubelet starts must live.

It holds the lab's pods apart from those of another kubelet on the machine, and
it is the list of processes to end when the node leaves: whatever a container
forked, it cannot fork out of its control group. Both layouts are served: one
hierarchy per controller (v1, also hybrid) and the single one (v2).
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from croupier.lab.errors import LabError

MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
EMPTY_WITHIN = 10.0
POLL = 0.02


def create(name: str, mount: Path = MOUNT) -> None:
    """Make the group in every hierarchy, with the controllers a kubelet asks for."""
    unified = mount / "cgroup.subtree_control"
    if unified.exists():
        _enable(unified, (mount / "cgroup.controllers").read_text().split())
    for hierarchy in hierarchies(mount):
        (hierarchy / name).mkdir(exist_ok=True)


def _enable(subtree: Path, available: list[str]) -> None:
    enabled = subtree.read_text().split()
    for controller in (one for one in CONTROLLERS if one in available and one not in enabled):
        try:
            subtree.write_text(f"+{controller}")
        except OSError as error:
            raise LabError(
                f"The control group controller {controller!r} cannot be passed on in {subtree} "
                f"({error.strerror}), and a real node needs it: move the processes of {subtree.parent} "
                "into a group below it, or use a machine where none sit there."
            ) from error


def hierarchies(mount: Path = MOUNT) -> tuple[Path, ...]:
    """The roots of all hierarchies: the mount itself (v2), or one folder per controller (v1)."""
    if (mount / "cgroup.procs").exists():
        return (mount,)
    return tuple(sorted({p.resolve() for p in mount.iterdir() if (p / "cgroup.procs").exists()}))


async def remove(name: str, mount: Path = MOUNT) -> None:
    """End every process in the group, then remove it; harmless when there is none."""
    deadline = asyncio.get_running_loop().time() + EMPTY_WITHIN
    while groups := [group for root in hierarchies(mount) for group in _deepest_first(root / name)]:
        for pid in {pid for group in groups for pid in _processes(group)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for group in groups:
            with contextlib.suppress(OSError):  # busy until its processes have ended; tried again
                group.rmdir()
        if asyncio.get_running_loop().time() > deadline:
            raise LabError(f"The control group {groups[-1]} cannot be removed: processes in it do not end.")
        await asyncio.sleep(POLL)


def _deepest_first(group: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(group, topdown=False):
        yield Path(folder)


def _processes(group: Path) -> list[int]:
    try:
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []
