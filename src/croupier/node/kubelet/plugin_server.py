"""The gRPC server of one device plugin.

Every process uses a unique socket name: grpc removes its socket when it stops, even if another process has
bound the same path since.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any, Final

from croupier.core.nodes.device_allocation import PreferenceRequest
from croupier.core.nodes.plugin_devices import PluginDevice
from croupier.node.kubelet import grpc_calls
from croupier.node.kubelet.allocator import AllocateResult, Allocator
from croupier.node.proto import device_plugin_pb2 as wire

PREFIX: Final = "croupier-"
STOP_TIMEOUT: Final = 1.0
"""Seconds that calls in progress have when the server stops."""


class PluginServer:
    def __init__(self, resource: str, allocator: Allocator, lost: asyncio.Event) -> None:
        self.resource = resource
        self._allocator = allocator
        self._lost = lost
        """Set when the kubelet's stream ends although the plugin has not stopped."""
        self._devices: tuple[PluginDevice, ...] = ()
        self._changed = asyncio.Event()
        self._ending = False
        self._streams = 0
        self.was_watched = False
        """The kubelet has opened a stream since the last registration."""
        self._server: Any = None
        self.socket: Path | None = None

    @property
    def is_watched(self) -> bool:
        """The kubelet has a ListAndWatch stream open."""
        return self._streams > 0

    @property
    def is_bound(self) -> bool:
        """Whether the socket exists. Its loss would otherwise be noticed only when the kubelet connects."""
        return self.socket is not None and self.socket.is_socket()

    async def start(self, directory: Path) -> None:
        token = secrets.token_hex(4)
        slug = hashlib.sha256(self.resource.encode()).hexdigest()[:8]
        socket = directory / f"{PREFIX}{slug}-{token}.sock"
        self._server = await grpc_calls.serve(self, socket)
        self.socket = socket

    async def stop(self) -> None:
        """End the streams, then stop the server, which waits for them."""
        self._ending = True
        self._changed.set()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(STOP_TIMEOUT)
        if self.socket is not None:
            self.socket.unlink(missing_ok=True)
        self.socket = None

    def show(self, devices: tuple[PluginDevice, ...]) -> None:
        """Replace the listed devices. The kubelet gets an update only if they changed."""
        if devices != self._devices:
            self._devices = devices
            self._changed.set()
            self._changed = asyncio.Event()

    async def lists(self) -> AsyncGenerator[wire.ListAndWatchResponse, None]:
        """The responses of ListAndWatch. The first one comes at once: until then pods get no devices."""
        self._streams += 1
        self.was_watched = True
        try:
            while not self._ending:
                changed = self._changed
                yield _device_list(self._devices)
                await changed.wait()
        finally:
            self._streams -= 1
            if not self._ending:
                self._lost.set()

    async def prefer(self, asked: wire.PreferredAllocationRequest) -> wire.PreferredAllocationResponse:
        answers = []
        for container in asked.container_requests:
            request = PreferenceRequest(
                self.resource,
                container.allocation_size,
                tuple(container.available_deviceIDs),
                tuple(container.must_include_deviceIDs),
            )
            ids = await self._allocator.prefer(request)
            answers.append(wire.ContainerPreferredAllocationResponse(deviceIDs=ids))
        return wire.PreferredAllocationResponse(container_responses=answers)

    async def allocate(self, asked: wire.AllocateRequest) -> wire.AllocateResponse:
        results = [
            await self._allocator.allocate(self.resource, container.devices_ids)
            for container in asked.container_requests
        ]
        return wire.AllocateResponse(container_responses=[_allocate_response(result) for result in results])


def _device_list(devices: Iterable[PluginDevice]) -> wire.ListAndWatchResponse:
    """Unhealthy devices stay in the list: the kubelet does not notice when a device in use leaves it."""
    return wire.ListAndWatchResponse(
        devices=[
            wire.Device(ID=device.id, health="Healthy" if device.healthy else "Unhealthy")
            for device in devices
        ]
    )


def _allocate_response(result: AllocateResult) -> wire.ContainerAllocateResponse:
    """CDI names are used by runtimes that support them (containerd 2) and ignored by others."""
    edits = result.edits
    return wire.ContainerAllocateResponse(
        envs={**edits.env, **result.answer.env},
        mounts=[
            wire.Mount(container_path=mount.container, host_path=mount.host, read_only=mount.read_only)
            for mount in edits.mounts
        ],
        devices=[
            wire.DeviceSpec(container_path=node.container, host_path=node.host, permissions=node.permissions)
            for node in edits.device_nodes
        ],
        cdi_devices=[wire.CDIDevice(name=name) for name in edits.cdi],
    )
