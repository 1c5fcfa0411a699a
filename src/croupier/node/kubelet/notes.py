"""Who has which devices, also where the kubelet does not show it: init containers.

PodResources leaves them out, and yet they have what they have. The kubelet notes it for itself, in a file
beside its plugins' sockets, whenever it has served a container. That file is its own, so nothing stands or
falls with it: one that cannot be read is told once, and what is shown must do.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog

from croupier.core.nodes import handed
from croupier.core.nodes.handed import BoundPod, Holding, Note

FILE: Final = "kubelet_internal_checkpoint"
"""In the kubelet's device-plugins folder."""

log = structlog.get_logger(__name__)


class Shown(Protocol):
    async def holdings(self) -> tuple[Holding, ...]: ...


class _Entry(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    devices: dict[str, tuple[str, ...] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    """By NUMA node."""


class _Data(msgspec.Struct, frozen=True):
    entries: tuple[_Entry, ...] | None = msgspec.field(name="PodDeviceEntries", default=None)


class _File(msgspec.Struct, frozen=True):
    data: _Data = msgspec.field(name="Data", default_factory=_Data)


class KubeletNotes:
    """What the kubelet shows, completed by what it has noted of `pods`: those of the node, unfinished."""

    def __init__(self, shown: Shown, directory: Path, pods: Callable[[], Iterable[BoundPod]]) -> None:
        self._shown = shown
        self._path = directory / FILE
        self._pods = pods
        self._trouble = ""

    async def holdings(self) -> tuple[Holding, ...]:
        return handed.complete(await self._shown.holdings(), self._notes(), self._pods())

    def _notes(self) -> tuple[Note, ...]:
        try:
            found = read(self._path.read_bytes())
        except FileNotFoundError:
            return ()  # it has handed out nothing yet
        except (OSError, ValueError) as error:
            if str(error) != self._trouble:
                log.warning("the kubelet's notes cannot be read", path=str(self._path), error=str(error))
            self._trouble = str(error)
            return ()
        self._trouble = ""
        return found


def read(text: bytes) -> tuple[Note, ...]:
    """ValueError if they are not written as we know them."""
    entries = msgspec.json.decode(text, type=_File).data.entries or ()
    return tuple(Note(one.uid, one.container, one.resource, tuple(sorted(_ids(one)))) for one in entries)


def _ids(entry: _Entry) -> Iterable[str]:
    return (device for some in (entry.devices or {}).values() for device in some or ())
