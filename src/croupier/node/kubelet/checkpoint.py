"""Device assignments completed with those of init containers, from the kubelet's checkpoint file.

The PodResources API leaves init containers out. The kubelet writes their devices to a checkpoint file next to
the plugin sockets. The file is internal to the kubelet, so it is optional: if it cannot be read, one warning
is logged and only the assignments of the API are used.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from croupier.core.nodes import kubelet_assignments
from croupier.core.nodes.kubelet_assignments import BoundPod, CheckpointEntry, KubeletAssignment
from croupier.node.kubelet.allocator import DeviceAssignments

FILE: Final = "kubelet_internal_checkpoint"
"""The name of the file in the kubelet's device-plugins folder."""

log = structlog.get_logger(__name__)


class _CheckpointEntry(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    devices: dict[str, tuple[str, ...] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    """The device IDs by NUMA node."""


class _CheckpointData(msgspec.Struct, frozen=True):
    entries: tuple[_CheckpointEntry, ...] | None = msgspec.field(name="PodDeviceEntries", default=None)


class _CheckpointFile(msgspec.Struct, frozen=True):
    data: _CheckpointData = msgspec.field(name="Data", default_factory=_CheckpointData)


class KubeletCheckpoint:
    """The assignments of `shown`, completed from the checkpoint for the unfinished `pods` of the node."""

    def __init__(
        self, source: DeviceAssignments, directory: Path, pods: Callable[[], Iterable[BoundPod]]
    ) -> None:
        self._source = source
        self._path = directory / FILE
        self._pods = pods
        self._trouble = ""

    async def holdings(self) -> tuple[KubeletAssignment, ...]:
        return kubelet_assignments.with_checkpoint(
            await self._source.holdings(), self._read_checkpoint(), self._pods()
        )

    def _read_checkpoint(self) -> tuple[CheckpointEntry, ...]:
        try:
            entries = decode(self._path.read_bytes())
        except FileNotFoundError:
            return ()  # the kubelet has not allocated any device yet
        except (OSError, ValueError) as error:
            if str(error) != self._trouble:
                log.warning(
                    f"the kubelet's checkpoint {self._path} cannot be read",
                    path=str(self._path),
                    error=str(error),
                )
            self._trouble = str(error)
            return ()
        self._trouble = ""
        return entries


def decode(text: bytes) -> tuple[CheckpointEntry, ...]:
    """ValueError if the checkpoint has an unknown format."""
    try:
        entries = msgspec.json.decode(text, type=_CheckpointFile).data.entries or ()
    except RecursionError as deep:
        raise ValueError("it is nested too deeply") from deep
    return tuple(
        CheckpointEntry(entry.uid, entry.container, entry.resource, tuple(sorted(_ids(entry))))
        for entry in entries
    )


def _ids(entry: _CheckpointEntry) -> Iterable[str]:
    return (device for ids in (entry.devices or {}).values() for device in ids or ())
