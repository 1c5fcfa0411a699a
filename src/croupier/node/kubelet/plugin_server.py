"""One device plugin: one resource, one socket, one server.

The socket has a name of its own in every process: grpc removes its socket when it stops, even if
another process has bound that path since.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Collection, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

from croupier.core.nodes.allotment import Asked
from croupier.core.nodes.devices import Device
from croupier.node.kubelet import calls
from croupier.node.kubelet.plugin_desk import Dealt
from croupier.node.proto import device_plugin_pb2 as wire

PREFIX: Final = "croupier-"
GRACE: Final = 1.0
"""Seconds a call in progress has to end when its server stops."""


class Answering(Protocol):
    """plugin_desk.Desk, as a plugin sees it."""

    async def prefer(self, asked: Asked) -> tuple[str, ...]: ...
    async def allocate(self, resource: str, ids: Collection[str]) -> Dealt: ...


class PluginServer:
    def __init__(self, resource: str, desk: Answering, lost: asyncio.Event) -> None:
        self.resource = resource
        self._desk = desk
        self._lost = lost
        """Set when the kubelet stops listening though we have not stopped."""
        self._devices: tuple[Device, ...] = ()
        self._changed = asyncio.Event()
        self._ending = False
        self._streams = 0
        self.was_heard = False
        """The kubelet listened at least once since it was last registered."""
        self._server: Any = None
        self.socket: Path | None = None

    @property
    def is_heard(self) -> bool:
        """The kubelet is listening."""
        return self._streams > 0

    @property
    def is_bound(self) -> bool:
        """Its socket is there. Nobody notices when it is not, until the kubelet dials it."""
        return self.socket is not None and self.socket.is_socket()

    async def start(self, directory: Path) -> None:
        token = secrets.token_hex(4)
        slug = hashlib.sha256(self.resource.encode()).hexdigest()[:8]
        socket = directory / f"{PREFIX}{slug}-{token}.sock"
        self._server = await calls.serve(self, socket)
        self.socket = socket

    async def stop(self) -> None:
        """The lists end first: stopping waits for them."""
        self._ending = True
        self._changed.set()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(GRACE)
        if self.socket is not None:
            self.socket.unlink(missing_ok=True)
        self.socket = None

    def show(self, devices: tuple[Device, ...]) -> None:
        """What the kubelet sees from now on; it is told only of changes."""
        if devices != self._devices:
            self._devices = devices
            self._changed.set()
            self._changed = asyncio.Event()

    async def lists(self) -> AsyncGenerator[wire.ListAndWatchResponse, None]:
        """The first at once: until the kubelet has it, pods get devices late or none."""
        self._streams += 1
        self.was_heard = True
        try:
            while not self._ending:
                changed = self._changed
                yield _listed(self._devices)
                await changed.wait()
        finally:
            self._streams -= 1
            if not self._ending:
                self._lost.set()

    async def prefer(self, asked: wire.PreferredAllocationRequest) -> wire.PreferredAllocationResponse:
        answers = []
        for one in asked.container_requests:
            question = Asked(
                self.resource,
                one.allocation_size,
                tuple(one.available_deviceIDs),
                tuple(one.must_include_deviceIDs),
            )
            ids = await self._desk.prefer(question)
            answers.append(wire.ContainerPreferredAllocationResponse(deviceIDs=ids))
        return wire.PreferredAllocationResponse(container_responses=answers)

    async def allocate(self, asked: wire.AllocateRequest) -> wire.AllocateResponse:
        dealt = [
            await self._desk.allocate(self.resource, one.devices_ids) for one in asked.container_requests
        ]
        return wire.AllocateResponse(container_responses=[_answer(one) for one in dealt])


def _listed(devices: Iterable[Device]) -> wire.ListAndWatchResponse:
    """What is unhealthy stays in the list: the kubelet does not notice when a device in use leaves it."""
    return wire.ListAndWatchResponse(
        devices=[wire.Device(ID=one.id, health="Healthy" if one.healthy else "Unhealthy") for one in devices]
    )


def _answer(dealt: Dealt) -> wire.ContainerAllocateResponse:
    """CDI names are for runtimes that know them (containerd 2); others leave them out without a word."""
    edits = dealt.edits
    return wire.ContainerAllocateResponse(
        envs={**edits.env, **dealt.answer.env},
        mounts=[
            wire.Mount(container_path=one.container, host_path=one.host, read_only=one.read_only)
            for one in edits.mounts
        ],
        devices=[
            wire.DeviceSpec(container_path=one.container, host_path=one.host, permissions=one.permissions)
            for one in edits.device_nodes
        ],
        cdi_devices=[wire.CDIDevice(name=name) for name in edits.cdi],
    )
