"""The kubelet's device assignments, from its PodResources API.

The kubelet allows a hundred calls per second with a burst of ten and refuses more. Calls are limited to less
than that and wait for their turn.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from croupier.core.nodes.kubelet_assignments import KubeletAssignment
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.controller.rate_limit import RateLimit, TokenBucket
from croupier.node.kubelet import grpc_calls
from croupier.node.proto.pod_resources_pb2 import ContainerDevices

RATE_LIMIT: Final = RateLimit(per_second=50.0, burst=5)


class PodResources:
    """All methods raise KubeletError if the kubelet does not answer."""

    def __init__(self, socket: Path, clock: Clock | None = None) -> None:
        self._socket = socket
        self._clock = clock or SystemClock()
        self._bucket = TokenBucket(RATE_LIMIT)
        self._turns = asyncio.Lock()

    async def holdings(self) -> tuple[KubeletAssignment, ...]:
        """The devices of every container, from all plugins. Of init containers only sidecars are included."""
        await self._turn()
        response = await grpc_calls.pod_resources(self._socket)
        return tuple(
            KubeletAssignment(f"{pod.namespace}/{pod.name}", container.name, resource, ids)
            for pod in response.pod_resources
            for container in pod.containers
            for resource, ids in _by_resource(container.devices).items()
        )

    async def registered(self) -> dict[str, tuple[str, ...]]:
        """The healthy devices by resource, from all plugins."""
        await self._turn()
        return _by_resource((await grpc_calls.allocatable(self._socket)).devices)

    async def _turn(self) -> None:
        # One call at a time: after a stall of this process all waiting calls would start at once.
        async with self._turns:
            if wait := self._bucket.delay(self._clock.monotonic()):
                await self._clock.sleep(wait)


def _by_resource(devices: Iterable[ContainerDevices]) -> dict[str, tuple[str, ...]]:
    """Merge the kubelet's entries, one per device, into one per resource."""
    merged: dict[str, list[str]] = {}
    for entry in devices:
        merged.setdefault(entry.resource_name, []).extend(entry.device_ids)
    return {resource: tuple(sorted(ids)) for resource, ids in merged.items()}
