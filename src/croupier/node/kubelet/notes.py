"""Device assignments completed with those of init containers, from the kubelet's checkpoint file.

The PodResources API leaves init containers out. The kubelet writes their devices to a checkpoint file next to
the plugin sockets. The file is internal to the kubelet, so it is optional: if it cannot be read, one warning
is logged and only the assignments of the API are used.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog

from croupier.core.nodes import handed
from croupier.core.nodes.handed import BoundPod, Holding, Note

FILE: Final = "kubelet_internal_checkpoint"
"""The name of the file in the kubelet's device-plugins folder."""

log = structlog.get_logger(__name__)


class Shown(Protocol):
    async def holdings(self) -> tuple[Holding, ...]: ...


class _Entry(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    devices: dict[str, tuple[str, ...] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    """The device IDs by NUMA node."""


class _Data(msgspec.Struct, frozen=True):
    entries: tuple[_Entry, ...] | None = msgspec.field(name="PodDeviceEntries", default=None)


class _File(msgspec.Struct, frozen=True):
    data: _Data = msgspec.field(name="Data", default_factory=_Data)


class KubeletNotes:
    """The assignments of `shown`, completed from the checkpoint for the unfinished `pods` of the node."""

    def __init__(self, shown: Shown, directory: Path, pods: Callable[[], Iterable[BoundPod]]) -> None:
        self._shown = shown
        self._path = directory / FILE
        self._pods = pods
        self._trouble = ""

    async def holdings(self) -> tuple[Holding, ...]:
        return handed.complete(await self._shown.holdings(), self._notes(), self._pods())

    def _notes(self) -> tuple[Note, ...]:
        try:
            entries = read(self._path.read_bytes())
        except FileNotFoundError:
            return ()  # the kubelet has not allocated any device yet
        except (OSError, ValueError) as error:
            if str(error) != self._trouble:
                log.warning("cannot read the kubelet's checkpoint", path=str(self._path), error=str(error))
            self._trouble = str(error)
            return ()
        self._trouble = ""
        return entries


def read(text: bytes) -> tuple[Note, ...]:
    """ValueError if the checkpoint has an unknown format."""
    entries = msgspec.json.decode(text, type=_File).data.entries or ()
    return tuple(
        Note(entry.uid, entry.container, entry.resource, tuple(sorted(_ids(entry)))) for entry in entries
    )


def _ids(entry: _Entry) -> Iterable[str]:
    return (device for ids in (entry.devices or {}).values() for device in ids or ())
