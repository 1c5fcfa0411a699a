"""Paths of container cgroups, computed from names alone.

The kubelet names a cgroup by its ancestors: cgroupRoot, kubepods, the QoS class, the pod. The cgroupfs driver
creates directories with these names; the systemd driver creates slices named by the whole path, with '_' for
'-'. The names inside a pod's cgroup depend on the runtime, but always contain the container id.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

CgroupDriver: TypeAlias = Literal["cgroupfs", "systemd"]

KUBEPODS: Final = "kubepods"
QOS_PATHS: Final = {"Guaranteed": (), "Burstable": ("burstable",), "BestEffort": ("besteffort",)}
_SHORTEST_ID: Final = 12


@dataclass(frozen=True, slots=True)
class ContainerCgroup:
    """One container of one pod."""

    uid: str
    qos: str
    container: str
    """The container id without the prefix of the runtime."""


def names(written: str) -> tuple[str, ...]:
    """The parts of a cgroupRoot such as `/`, `/croupier-ab12` or `/system/pods`."""
    return tuple(part for part in written.split("/") if part)


def path(parts: Sequence[str], driver: CgroupDriver) -> str:
    """The path of a cgroup below the top of a hierarchy."""
    if driver == "cgroupfs":
        return "/".join(parts)
    return "/".join(_slices(parts))


def _slices(parts: Sequence[str]) -> Iterator[str]:
    escaped = [part.replace("-", "_") for part in parts]
    for count in range(1, len(parts) + 1):
        yield f"{'-'.join(escaped[:count])}.slice"


def of_pod(place: ContainerCgroup, root: Sequence[str], driver: CgroupDriver) -> str:
    return path((*root, KUBEPODS, *QOS_PATHS.get(place.qos, ()), f"pod{place.uid}"), driver)


def pick(folders: Iterable[str], container: str) -> str | None:
    """The container's cgroup in its pod's cgroup: `<id>`, `cri-containerd-<id>.scope`, `crio-<id>`, ...

    CRI-O also has a cgroup for conmon, the monitor of the container, whose name contains the same id.
    """
    if len(container) < _SHORTEST_ID:
        return None
    fit = [folder for folder in folders if container in folder and "conmon" not in folder]
    return min(fit, key=len, default=None)


def container_id(written: str) -> str:
    """`containerd://4f5c...` without the runtime's name."""
    return written.rpartition("://")[2]
