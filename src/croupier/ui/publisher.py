"""The loop that turns changes of the cluster into deltas, at most every 100 ms."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from croupier.kube.client.clock import Clock, SystemClock
from croupier.ui.api_contact import ApiContact
from croupier.ui.metrics import PageMetrics
from croupier.ui.recent_changes import RecentChanges
from croupier.ui.stream import BEAT_INTERVAL, StreamHub
from croupier.ui.tables import Delta
from croupier.ui.world import World

FLUSH_INTERVAL: Final = 0.1
GATHER: Final = 0.01
"""Seconds to collect what changes together."""
TICK: Final = 1.0
"""Seconds between updates without a change: agents become silent, kinds become readable."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterName:
    """How the page names the cluster."""

    server: str = ""
    context: str = ""


class DeltaPublisher:
    def __init__(
        self,
        world: World,
        hub: StreamHub,
        contact: ApiContact,
        *,
        name: ClusterName,
        metrics: PageMetrics,
        clock: Clock | None = None,
    ) -> None:
        self._world = world
        self._hub = hub
        self._contact = contact
        self._name = name
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self.listeners: list[Callable[[Delta], None]] = []
        """Called with each delta, after the streams."""
        self.published = asyncio.Event()
        """Set once the first rows are published."""
        self._changes = RecentChanges(world.tables)

    async def run(self) -> None:
        """Publish until cancelled."""
        while not self._contact.answered():
            await self._clock.sleep(0.05)
        while True:
            self._publish_guarded()
            self.published.set()
            await self._clock.sleep(FLUSH_INTERVAL - GATHER)
            try:
                async with asyncio.timeout(TICK):
                    await self._world.changed.wait()
            except TimeoutError:
                continue
            await self._clock.sleep(GATHER)

    async def beat(self) -> None:
        """Send beats until cancelled."""
        while True:
            await self._clock.sleep(BEAT_INTERVAL)
            self._hub.beat(self._clock.now().timestamp())

    def _publish_guarded(self) -> None:
        try:
            with self._metrics.update_seconds.time():
                self.publish()
        except Exception:  # one object that cannot be shown must not end the page
            log.exception("the page failed to compute the rows of a change")

    def publish(self) -> Delta | None:
        world, tables = self._world, self._world.tables
        world.forbid(self._contact.forbidden())
        world.update()
        tables.put(
            "cluster",
            "cluster",
            {
                "server": self._name.server,
                "context": self._name.context,
                "version": self._contact.version,
                "capacityManager": "CRD" if world.recorded else "InMemory",
                "unreadable": self._contact.unreadable(),
            },
        )
        now = self._clock.now().timestamp()
        self._changes.update(now)
        delta = tables.flush(now)
        self._metrics.unexplained.set(world.waiting.unexplained)
        if delta is not None:
            self._hub.publish(delta)
            for listener in self.listeners:
                listener(delta)
        return delta
