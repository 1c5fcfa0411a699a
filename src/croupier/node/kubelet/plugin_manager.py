"""The device plugins of a node: one per resource, kept registered with the kubelet.

The kubelet forgets its plugins when it restarts, drops a plugin whose ListAndWatch stream ends, and uses the
last registration of a resource. The consequences, all observed on a real kubelet:

- If kubelet.sock was recreated, bind and register again: the kubelet removed every socket. The inode number
  may be the same as before, so the creation time is compared too.
- If a stream ends that this process did not end, register again. A stream also ends when another process that
  served the same resource stops, for example an old agent during an upgrade.
- A registration with a missing socket fails after ten seconds and leaves devices without a plugin, so the
  own socket is checked first.
- A resource that another plugin serves is left to that plugin. If it registered after this one, the own
  stream stays open without updates: the kubelet would take its end for the end of the other plugin.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import structlog

from croupier.core.nodes import plugin_devices
from croupier.core.nodes.kubelet_assignments import KubeletAssignment
from croupier.core.nodes.plugin_devices import PluginDevice, ServedResources
from croupier.kube.client.clock import Clock, SystemClock
from croupier.node.kubelet import grpc_calls
from croupier.node.kubelet.allocator import Allocator
from croupier.node.kubelet.grpc_calls import KubeletError
from croupier.node.kubelet.plugin_server import PREFIX, PluginServer

KUBELET_SOCKET: Final = "kubelet.sock"
POLL_INTERVAL: Final = 0.5
"""Seconds between two checks of kubelet.sock and the own sockets."""
LIST_TIMEOUT: Final = 5.0
"""Seconds within which the kubelet opens its ListAndWatch stream after a registration."""
MAX_BACKOFF: Final = 10.0
"""The longest backoff between two attempts, in seconds."""

_log = structlog.get_logger(__name__)

_SocketIdentity: TypeAlias = tuple[int, int]
"""Identifies a kubelet.sock: inode and creation time."""


class DeviceRegistry(Protocol):
    """The devices that the kubelet knows, by resource, from all plugins."""

    async def registered(self) -> dict[str, tuple[str, ...]]: ...


@dataclass(frozen=True, slots=True)
class PluginOptions:
    node: str
    directory: Path
    """The kubelet's device-plugins folder."""
    ask_every: float = 10.0
    """Seconds between two checks for other plugins."""
    others_gone_after: float = 60.0
    """Seconds after which the resource of a vanished plugin, which may be restarting, is taken over."""


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """The state of the plugins for status reports."""

    serves: frozenset[str] = frozenset()
    """The resources that this agent serves."""
    served_by_others: frozenset[str] = frozenset()
    """The offered resources that another plugin already serves."""
    troubles: tuple[str, ...] = ()


@dataclass(slots=True)
class _Registration:
    """The plugin of one resource."""

    server: PluginServer
    kubelet: _SocketIdentity | None = None
    """The kubelet that it is registered with."""
    at: float = float("-inf")
    """The time of the last attempt to register."""
    wait: float = POLL_INTERVAL
    yielded: bool = False
    """Another plugin has registered for the same resource."""
    trouble: str = ""


class PluginManager:
    """Use it for one `run`. Call `serve` whenever the offer changes."""

    def __init__(
        self,
        settings: PluginOptions,
        allocator: Allocator,
        registry: DeviceRegistry,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._allocator = allocator
        self._registry = registry
        self._clock = clock or SystemClock()
        self._desired: Mapping[str, tuple[PluginDevice, ...]] = {}
        self._registrations: dict[str, _Registration] = {}
        self._kubelet: _SocketIdentity | None = None
        self._others: dict[str, float] = {}
        """The resources of other plugins, and when each was last seen."""
        self._asked_at = float("-inf")
        self._trouble = ""
        self._wake = asyncio.Event()

    async def serve(self, offer: ServedResources) -> None:
        """Send changed devices to the kubelet and register new resources soon.

        A resource that is no longer offered stays registered without devices: otherwise pods that request it
        would run without a device.
        """
        self._allocator.show(offer)
        gone: dict[str, tuple[PluginDevice, ...]] = dict.fromkeys(self._desired, ())
        self._desired = {**gone, **offer.resources}
        for name, plugin in self._registrations.items():
            if not plugin.yielded:
                plugin.server.show(self._desired.get(name, ()))
        if self._missing():
            self._wake.set()

    async def holdings(self) -> tuple[KubeletAssignment, ...]:
        """The kubelet's assignments of the offered cards. KubeletError if the kubelet does not answer."""
        return await self._allocator.holdings()

    def _missing(self) -> set[str]:
        """The resources without a plugin."""
        return self._desired.keys() - self._registrations.keys() - self._others.keys()

    @property
    def status(self) -> PluginStatus:
        own = {name: plugin for name, plugin in self._registrations.items() if name not in self._others}
        serves = {
            name for name, plugin in own.items() if self._is_registered(plugin) and plugin.server.is_watched
        }
        troubles = dict.fromkeys((self._trouble, *(plugin.trouble for plugin in own.values())))
        return PluginStatus(
            frozenset(serves),
            frozenset(self._others.keys() & self._desired.keys()),
            tuple(trouble for trouble in troubles if trouble),
        )

    async def run(self, stop: asyncio.Event) -> None:
        await _remove_stale_sockets(self._settings.directory)
        try:
            while not stop.is_set():
                self._wake.clear()
                await self._round()
                await self._pause(stop)
        finally:
            servers = [plugin.server for plugin in self._registrations.values()]
            self._registrations.clear()
            await asyncio.gather(*(server.stop() for server in servers))

    async def _pause(self, stop: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, self._wake)]
        try:
            await asyncio.wait(waits, timeout=POLL_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _round(self) -> None:
        """Check the kubelet, the other plugins, and each own plugin."""
        kubelet = _identity(self._settings.directory / KUBELET_SOCKET)
        if kubelet != self._kubelet:
            self._kubelet = kubelet
            self._asked_at = float("-inf")
        if kubelet is None:
            socket = self._settings.directory / KUBELET_SOCKET
            self._trouble = f"no kubelet listens at {socket}; no devices are offered to pods"
            return
        if not await self._update_others():
            return
        for resource in self._desired:
            if resource not in self._others:
                await self._ensure_registered(resource)

    async def _update_others(self) -> bool:
        """Update the resources of other plugins: before a registration, and regularly. False on failure."""
        now = self._clock.monotonic()
        settled = not self._missing() and all(map(self._is_active, self._registrations.values()))
        if settled and now < self._asked_at + self._settings.ask_every:
            return True
        try:
            registered = await self._registry.registered()
        except KubeletError as error:
            self._trouble = str(error)
            return False
        self._trouble = ""
        self._asked_at = now
        seen = plugin_devices.foreign(self._settings.node, registered)
        self._others.update(dict.fromkeys(seen, now))
        for resource in [r for r, at in self._others.items() if now > at + self._settings.others_gone_after]:
            del self._others[resource]
        for resource in seen & self._registrations.keys():
            if not self._registrations[resource].yielded:
                _log.warning(f"another device plugin already serves {resource}", resource=resource)
            self._registrations[resource].yielded = True
        return True

    async def _ensure_registered(self, resource: str) -> None:
        """Make sure that the plugin is bound, registered with this kubelet, and watched by it."""
        plugin = self._registrations.get(resource)
        if plugin is not None and (plugin.yielded or not plugin.server.is_bound):
            # Stop it before the new one registers: the kubelet would take its end for the end of the new one.
            del self._registrations[resource]
            await plugin.server.stop()
            plugin = None
        if plugin is None:
            plugin = await self._start_server(resource)
        if plugin is None or self._is_active(plugin):
            return
        wait = POLL_INTERVAL if plugin.server.was_watched else plugin.wait
        if self._clock.monotonic() >= plugin.at + wait:
            await self._register(plugin)

    async def _start_server(self, resource: str) -> _Registration | None:
        plugin = self._registrations[resource] = _Registration(
            PluginServer(resource, self._allocator, self._wake)
        )
        plugin.server.show(self._desired.get(resource, ()))
        try:
            await plugin.server.start(self._settings.directory)
        except KubeletError as error:
            del self._registrations[resource]
            self._trouble = f"cannot start the device plugin of {resource}: {error}"
            return None
        return plugin

    def _is_registered(self, plugin: _Registration) -> bool:
        return plugin.kubelet is not None and plugin.kubelet == self._kubelet

    def _is_active(self, plugin: _Registration) -> bool:
        return plugin.yielded or (self._is_registered(plugin) and plugin.server.is_watched)

    async def _register(self, plugin: _Registration) -> None:
        socket = plugin.server.socket
        if socket is None:
            return
        plugin.at = self._clock.monotonic()
        plugin.server.was_watched = False
        resource = plugin.server.resource
        try:
            await grpc_calls.register(self._settings.directory, socket.name, resource)
        except KubeletError as error:
            plugin.kubelet, plugin.trouble = None, str(error)
            plugin.wait = min(2 * plugin.wait, MAX_BACKOFF)
            _log.warning(
                f"the device plugin of {resource} cannot be registered", resource=resource, error=str(error)
            )
            return
        plugin.kubelet, plugin.trouble, plugin.wait = self._kubelet, "", LIST_TIMEOUT
        _log.info(f"the device plugin of {resource} was registered with the kubelet", resource=resource)


def _identity(socket: Path) -> _SocketIdentity | None:
    try:
        status = socket.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


async def _remove_stale_sockets(directory: Path) -> None:
    """Remove sockets that a killed agent left behind."""
    for path in _own_sockets(directory):
        try:
            _, writer = await asyncio.open_unix_connection(path)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            writer.close()


def _own_sockets(directory: Path) -> list[Path]:
    return list(directory.glob(f"{PREFIX}*.sock"))
