"""Who has which devices, by the kubelet's own account.

It answers a hundred calls a second and ten at once, then refuses; so we ask for less than that, and wait
rather than be refused.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from croupier.core.nodes.handed import Holding
from croupier.kube.bucket import Bucket, Rate
from croupier.kube.clock import Clock, SystemClock
from croupier.node.kubelet import calls
from croupier.node.proto.pod_resources_pb2 import ContainerDevices

BOUND: Final = Rate(per_second=50.0, burst=5)


class PodResources:
    """Raises KubeletError while the kubelet does not answer."""

    def __init__(self, socket: Path, clock: Clock | None = None) -> None:
        self._socket = socket
        self._clock = clock or SystemClock()
        self._bucket = Bucket(BOUND)
        self._turns = asyncio.Lock()

    async def holdings(self) -> tuple[Holding, ...]:
        """Every container with devices, of whichever plugin. Of init containers only those that stay."""
        await self._turn()
        told = await calls.pod_resources(self._socket)
        return tuple(
            Holding(f"{pod.namespace}/{pod.name}", container.name, resource, ids)
            for pod in told.pod_resources
            for container in pod.containers
            for resource, ids in _gathered(container.devices).items()
        )

    async def registered(self) -> dict[str, tuple[str, ...]]:
        """Every resource of which some plugin lists healthy devices, and those."""
        await self._turn()
        return _gathered((await calls.allocatable(self._socket)).devices)

    async def _turn(self) -> None:
        # One at a time: after a stall of this process all who had waited would ask at once.
        async with self._turns:
            if wait := self._bucket.delay(self._clock.monotonic()):
                await self._clock.sleep(wait)


def _gathered(devices: Iterable[ContainerDevices]) -> dict[str, tuple[str, ...]]:
    """The kubelet writes an entry per device; here is one per resource."""
    found: dict[str, list[str]] = {}
    for entry in devices:
        found.setdefault(entry.resource_name, []).extend(entry.device_ids)
    return {resource: tuple(sorted(ids)) for resource, ids in found.items()}
