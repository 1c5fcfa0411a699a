"""Where the kubelet and the runtime put a container's control group, as a function of names alone.

The kubelet names a group by its ancestors: cgroupRoot, kubepods, the QoS class, the pod. The cgroupfs driver
makes folders of these names; the systemd driver makes slices, each named by the whole way to it, with '_' for
'-'. What is inside a pod's group the runtime names, each in its own way, but always by the container's id.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Driver: TypeAlias = Literal["cgroupfs", "systemd"]

KUBEPODS: Final = "kubepods"
CLASSES: Final = {"Guaranteed": (), "Burstable": ("burstable",), "BestEffort": ("besteffort",)}
_SHORTEST_ID: Final = 12


@dataclass(frozen=True, slots=True)
class Place:
    """One container of one pod."""

    uid: str
    qos: str
    container: str
    """The runtime's id, without the runtime's name."""


def names(written: str) -> tuple[str, ...]:
    """The kubelet's cgroupRoot as it is written: `/`, `/croupier-ab12`, `/system/pods`."""
    return tuple(part for part in written.split("/") if part)


def path(parts: Sequence[str], driver: Driver) -> str:
    """A group below the top of a hierarchy."""
    if driver == "cgroupfs":
        return "/".join(parts)
    return "/".join(_slices(parts))


def _slices(parts: Sequence[str]) -> Iterator[str]:
    escaped = [part.replace("-", "_") for part in parts]
    for count in range(1, len(parts) + 1):
        yield f"{'-'.join(escaped[:count])}.slice"


def of_pod(place: Place, root: Sequence[str], driver: Driver) -> str:
    return path((*root, KUBEPODS, *CLASSES.get(place.qos, ()), f"pod{place.uid}"), driver)


def pick(folders: Iterable[str], container: str) -> str | None:
    """The container's group among those in its pod's: `<id>`, `cri-containerd-<id>.scope`, `crio-<id>`, ...

    CRI-O puts the process that watches a container beside it, under a name with the same id.
    """
    if len(container) < _SHORTEST_ID:
        return None
    fit = [one for one in folders if container in one and "conmon" not in one]
    return min(fit, key=len, default=None)


def container_id(written: str) -> str:
    """`containerd://4f5c...` without the runtime's name."""
    return written.rpartition("://")[2]
