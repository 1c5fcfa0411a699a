"""The static partitions of a card: each container with a share has its own set of multiprocessors.

The daemon knows its partitions but not their pods, so the agent records them. Allocate is called once for a
container, and an app container may get the devices of an init container: it then gets the same partition.
"""

from collections.abc import Collection
from contextlib import suppress
from typing import Final

import structlog

from croupier.core.nodes import mps_daemon
from croupier.node.mps.mps_control import MpsControl, MpsError
from croupier.node.mps.mps_folder import CardFolder

VARIABLE: Final = "CUDA_MPS_SM_PARTITION"

log = structlog.get_logger(__name__)


class StaticPartitions:
    def __init__(self, control: MpsControl) -> None:
        self._control = control

    async def take(self, card: CardFolder, pod: str, devices: Collection[str]) -> str:
        """The partition of a container: that of its devices, or a new one. `pod` is the UID of its pod."""
        known = card.partitions()
        for name, owner in known.items():
            if owner["pod"] == pod and set(devices) <= set(owner["devices"]):
                return name
        count = mps_daemon.chunks(len(devices), await self._control.total_chunks(card))
        name = await self._control.add_partition(card, count)
        card.write_partitions({**known, name: {"pod": pod, "devices": sorted(devices)}})
        return name

    async def release(self, card: CardFolder, pods: Collection[str]) -> None:
        """Remove the partitions of pods that are gone. `pods` are the UIDs of all pods of the node."""
        known = card.partitions()
        kept = {name: owner for name, owner in known.items() if owner["pod"] in pods}
        for name in known.keys() - kept.keys():
            try:
                await self._control.remove_partition(card, name)
            except MpsError as error:
                log.warning(
                    f"partition {name} of card {card.uuid} is not removed yet",
                    card=card.uuid,
                    error=str(error),
                )
                kept[name] = known[name]
        if kept != known:
            with suppress(FileNotFoundError):
                card.write_partitions(kept)
