"""The device plugins of a node: one per resource, kept registered whatever the kubelet does.

The kubelet forgets its plugins when it restarts, drops one that stops listing, and takes whoever registers
last for a resource. What follows from that, all of it seen on a real one:

- kubelet.sock made anew means: bind anew (the kubelet removed every socket) and register again. Its inode
  number can be the same as before, so the time of its making is compared too.
- A list that ends though we did not end it means: register again. It also ends when somebody else who
  served the same resource stops, as an old process of ours does during an upgrade.
- Registering with a socket that is gone fails after ten seconds and leaves the node with devices nobody
  serves, so our own socket is looked at first.
- A resource that another plugin serves is left to it. If it registered over ours, our list stays open and
  silent: the kubelet would take its end for the end of the other one.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import structlog

from croupier.core.nodes import devices
from croupier.core.nodes.devices import Device, Offer
from croupier.core.nodes.handed import Holding
from croupier.kube.clock import Clock, SystemClock
from croupier.node.kubelet import calls
from croupier.node.kubelet.calls import KubeletError
from croupier.node.kubelet.plugin_desk import Desk
from croupier.node.kubelet.plugin_server import PREFIX, PluginServer

KUBELET: Final = "kubelet.sock"
POLL: Final = 0.5
"""Seconds between two looks at kubelet.sock and at our own sockets."""
HEARD_WITHIN: Final = 5.0
"""Seconds in which the kubelet begins to listen after a registration."""
SLOWEST: Final = 10.0
"""Seconds between two tries at most."""

_log = structlog.get_logger(__name__)

_Kubelet: TypeAlias = tuple[int, int]
"""Which kubelet.sock it is: inode and time of its making."""


class Registry(Protocol):
    """Which devices the kubelet knows of which resource, whoever serves them."""

    async def registered(self) -> dict[str, tuple[str, ...]]: ...


@dataclass(frozen=True, slots=True)
class Settings:
    node: str
    directory: Path
    """The kubelet's device-plugins folder."""
    ask_every: float = 10.0
    """Seconds between two looks for other plugins."""
    others_gone_after: float = 60.0
    """Seconds without a sign of another plugin, which may be restarting, until its resource is ours."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a person should know."""

    serves: frozenset[str] = frozenset()
    """Resources the kubelet takes from us."""
    served_by_others: frozenset[str] = frozenset()
    """Resources we would serve and leave to a plugin that is there already."""
    troubles: tuple[str, ...] = ()


@dataclass(slots=True)
class _Seat:
    """One resource that we serve, or try to."""

    server: PluginServer
    kubelet: _Kubelet | None = None
    """The one it is registered with."""
    at: float = float("-inf")
    """When it was last tried."""
    wait: float = POLL
    yielded: bool = False
    """Somebody else registered over it."""
    trouble: str = ""


class Plugins:
    """Made for one run: `run` until stopped, `serve` as often as there is news."""

    def __init__(
        self, settings: Settings, desk: Desk, registry: Registry, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._desk = desk
        self._registry = registry
        self._clock = clock or SystemClock()
        self._wanted: Mapping[str, tuple[Device, ...]] = {}
        self._seats: dict[str, _Seat] = {}
        self._kubelet: _Kubelet | None = None
        self._others: dict[str, float] = {}
        """Resources of others, and when they were last seen to serve them."""
        self._asked_at = float("-inf")
        self._trouble = ""
        self._wake = asyncio.Event()

    async def serve(self, offer: Offer) -> None:
        """The kubelet sees changed devices at once; new resources are registered within a moment.

        A resource that is not offered any more stays, without devices: pods that ask for one without a
        plugin would run without a device.
        """
        self._desk.show(offer)
        gone: dict[str, tuple[Device, ...]] = dict.fromkeys(self._wanted, ())
        self._wanted = {**gone, **offer.resources}
        for name, seat in self._seats.items():
            if not seat.yielded:
                seat.server.show(self._wanted.get(name, ()))
        if self._missing():
            self._wake.set()

    async def holdings(self) -> tuple[Holding, ...]:
        """Who has what of our cards, by the kubelet; KubeletError while it does not answer."""
        return await self._desk.holdings()

    def _missing(self) -> set[str]:
        """Resources that are to be served and are not yet ours to try."""
        return self._wanted.keys() - self._seats.keys() - self._others.keys()

    @property
    def standing(self) -> Standing:
        seats = {name: seat for name, seat in self._seats.items() if name not in self._others}
        heard = {name for name, seat in seats.items() if self._is_registered(seat) and seat.server.is_heard}
        told = dict.fromkeys((self._trouble, *(seat.trouble for seat in seats.values())))
        return Standing(
            frozenset(heard),
            frozenset(self._others.keys() & self._wanted.keys()),
            tuple(trouble for trouble in told if trouble),
        )

    async def run(self, stop: asyncio.Event) -> None:
        await _sweep(self._settings.directory)
        try:
            while not stop.is_set():
                self._wake.clear()
                await self._round()
                await self._pause(stop)
        finally:
            servers = [seat.server for seat in self._seats.values()]
            self._seats.clear()
            await asyncio.gather(*(server.stop() for server in servers))

    async def _pause(self, stop: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, self._wake)]
        try:
            await asyncio.wait(waits, timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _round(self) -> None:
        """One look at the kubelet, at others, and at each of our plugins."""
        found = _identity(self._settings.directory / KUBELET)
        if found != self._kubelet:
            self._kubelet = found
            self._asked_at = float("-inf")
        if found is None:
            self._trouble = f"no kubelet listens at {self._settings.directory / KUBELET}: nothing is served"
            return
        if not await self._knows_others():
            return
        for resource in self._wanted:
            if resource not in self._others:
                await self._attend(resource)

    async def _knows_others(self) -> bool:
        """Which resources others serve; asked before we register any, and now and then."""
        now = self._clock.monotonic()
        settled = not self._missing() and all(map(self._is_heard, self._seats.values()))
        if settled and now < self._asked_at + self._settings.ask_every:
            return True
        try:
            registered = await self._registry.registered()
        except KubeletError as error:
            self._trouble = str(error)
            return False
        self._trouble = ""
        self._asked_at = now
        seen = devices.foreign(self._settings.node, registered)
        self._others.update(dict.fromkeys(seen, now))
        for resource in [r for r, at in self._others.items() if now > at + self._settings.others_gone_after]:
            del self._others[resource]
        for resource in seen & self._seats.keys():
            if not self._seats[resource].yielded:
                _log.warning("another device plugin serves the resource", resource=resource)
            self._seats[resource].yielded = True
        return True

    async def _attend(self, resource: str) -> None:
        """Bound, registered with this kubelet, and heard: what of it is not so is made so."""
        seat = self._seats.get(resource)
        if seat is not None and (seat.yielded or not seat.server.is_bound):
            # Ended before the new one registers: the kubelet would take its end for the end of that one.
            del self._seats[resource]
            await seat.server.stop()
            seat = None
        if seat is None:
            seat = await self._seated(resource)
        if seat is None or self._is_heard(seat):
            return
        wait = POLL if seat.server.was_heard else seat.wait
        if self._clock.monotonic() >= seat.at + wait:
            await self._register(seat)

    async def _seated(self, resource: str) -> _Seat | None:
        seat = self._seats[resource] = _Seat(PluginServer(resource, self._desk, self._wake))
        seat.server.show(self._wanted.get(resource, ()))
        try:
            await seat.server.start(self._settings.directory)
        except KubeletError as error:
            del self._seats[resource]
            self._trouble = f"{resource} is not served: {error}"
            return None
        return seat

    def _is_registered(self, seat: _Seat) -> bool:
        return seat.kubelet is not None and seat.kubelet == self._kubelet

    def _is_heard(self, seat: _Seat) -> bool:
        return seat.yielded or (self._is_registered(seat) and seat.server.is_heard)

    async def _register(self, seat: _Seat) -> None:
        socket = seat.server.socket
        if socket is None:
            return
        seat.at = self._clock.monotonic()
        seat.server.was_heard = False
        try:
            await calls.register(self._settings.directory, socket.name, seat.server.resource)
        except KubeletError as error:
            seat.kubelet, seat.trouble = None, str(error)
            seat.wait = min(2 * seat.wait, SLOWEST)
            _log.warning("not registered", resource=seat.server.resource, why=str(error))
            return
        seat.kubelet, seat.trouble, seat.wait = self._kubelet, "", HEARD_WITHIN
        _log.info("registered", resource=seat.server.resource)


def _identity(socket: Path) -> _Kubelet | None:
    try:
        found = socket.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


async def _sweep(directory: Path) -> None:
    """Remove sockets that a killed process of ours left: nobody answers there."""
    for path in _ours(directory):
        try:
            _, writer = await asyncio.open_unix_connection(path)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            writer.close()


def _ours(directory: Path) -> list[Path]:
    return list(directory.glob(f"{PREFIX}*.sock"))
