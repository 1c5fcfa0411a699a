"""Keeps a store in sync with the API server: lists once, then watches.

While the API server is unreachable, the store keeps its last content; `staleness`
is its age. `watch_state.py` decides the next step; this module executes it.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from croupier.kube.cache import watch_state
from croupier.kube.cache.store import Store
from croupier.kube.cache.watch_state import (
    Listed,
    ReflectorOptions,
    WatchClosed,
    WatchFailed,
    WatchOutcome,
    WatchPosition,
    WatchProgress,
)
from croupier.kube.client import identity, watch_protocol
from croupier.kube.client.api_client import EVERYTHING, Selection
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import KubeError, NotFound
from croupier.kube.client.identity import Key
from croupier.kube.client.listing import ObjectList
from croupier.kube.client.resource import Resource

T = TypeVar("T")

BATCH_SIZE = 500
"""Number of objects stored before yielding to the event loop."""

log = logging.getLogger(__name__)


class ListerWatcher(Protocol):
    """The part of a client that a reflector needs."""

    async def list(self, resource: Resource[T], selection: Selection = EVERYTHING) -> ObjectList[T]: ...

    def watch(
        self,
        resource: Resource[T],
        selection: Selection = EVERYTHING,
        *,
        resource_version: str = "",
        seconds: int = 300,
        idle_timeout: float = 90.0,
    ) -> AsyncGenerator[Sequence[watch_protocol.WatchEvent[T]], None]: ...


@dataclass(slots=True)
class ReflectorStats:
    """Counters of a reflector."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    failures: int = 0
    skipped: int = 0
    """Objects that did not match their type."""


class Reflector(Generic[T]):
    def __init__(
        self,
        source: ListerWatcher,
        store: Store[T],
        *,
        selection: Selection = EVERYTHING,
        rules: ReflectorOptions | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._source = source
        self._store = store
        self._selection = selection
        self._rules = rules or ReflectorOptions()
        self._clock = clock or SystemClock()
        self._chance = chance
        self._identify = identity.reader(store.resource.type)
        self._synced = asyncio.Event()
        self._contact = float("-inf")
        self.stats = ReflectorStats()
        self.last_error: KubeError | None = None
        """The reason why the store is stale; None while it is in sync."""

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    async def synced(self) -> None:
        """Wait until the first complete list is in the store."""
        await self._synced.wait()

    def staleness(self) -> float:
        """Seconds since the last response of the API server; infinite before the first."""
        return self._clock.monotonic() - self._contact

    async def run(self) -> None:
        """List and watch until cancelled."""
        position = WatchPosition()
        while True:
            if position.version is None:
                position, what = await self._list(position)
            else:
                position, what = await self._watch(position, position.version)
            await self._clock.sleep(watch_state.delay(position, what, self._rules, self._chance()))

    async def _list(self, position: WatchPosition) -> tuple[WatchPosition, WatchOutcome]:
        asked_at = self._clock.monotonic()
        try:
            listing = await self._source.list(self._store.resource, self._selection)
        except NotFound as error:
            if self._rules.optional:
                return await self._not_installed(position, error, asked_at)
            return self._failed(position, error)
        except KubeError as error:
            return self._failed(position, error)
        self._alive()
        self.stats.lists += 1
        for reason in listing.skipped:
            self._skip(reason)
        await self._install(listing, asked_at)
        listed = Listed(listing.resource_version)
        return watch_state.after(position, listed), listed

    async def _not_installed(
        self, position: WatchPosition, error: NotFound, asked_at: float
    ) -> tuple[WatchPosition, WatchOutcome]:
        """Log once that the kind is missing, then keep trying."""
        if self.last_error is None:
            log.info(f"the kind {self._store.resource.full_name} is not installed; its cache waits for it")
        await self._install(ObjectList([], ""), asked_at)
        self._contact, self.last_error = self._clock.monotonic(), error
        broke = WatchFailed(error)
        return watch_state.after(position, broke), broke

    async def _install(self, listing: ObjectList[T], asked_at: float) -> None:
        for key in self._store.missing_from(listing.items):
            self._store.remove(key)
        for start in range(0, len(listing.items), BATCH_SIZE):
            for item in listing.items[start : start + BATCH_SIZE]:
                self._put(item)
            await asyncio.sleep(0)
        self._store.relisted(asked_at)
        self._synced.set()

    async def _watch(self, position: WatchPosition, version: str) -> tuple[WatchPosition, WatchOutcome]:
        self.stats.watches += 1
        alive = False
        batches = self._source.watch(
            self._store.resource,
            self._selection,
            resource_version=version,
            seconds=self._rules.seconds(self._chance()),
            idle_timeout=self._rules.idle_timeout,
        )
        try:
            async with contextlib.aclosing(batches) as open_batches:
                async for batch in open_batches:
                    self._alive()
                    if not batch:  # the watch is open
                        continue
                    alive = True
                    position = self._absorb(position, batch)
                    _raise_failure(batch)
        except KubeError as error:
            return self._failed(position, error)
        ended = WatchClosed(alive)
        return watch_state.after(position, ended), ended

    def _absorb(
        self, position: WatchPosition, batch: Sequence[watch_protocol.WatchEvent[T]]
    ) -> WatchPosition:
        version = ""
        for event in batch:
            if isinstance(event, watch_protocol.ObjectEvent):
                object_id = self._identify(event.object)
                version = object_id.version
                if event.type == "DELETED":
                    self._store.remove(object_id.key)
                else:
                    self._put(event.object)
            elif isinstance(event, watch_protocol.Bookmark):
                version = event.resource_version
            elif isinstance(event, watch_protocol.SkippedEvent):
                version = self._pass_over(event) or version
        self.stats.events += len(batch)
        return watch_state.after(position, WatchProgress(version))

    def _put(self, item: T) -> None:
        try:
            self._store.put(item)
        except Exception as bug:  # an index that fails on one object must not end the watch
            log.exception(f"the cache cannot index {self._identify(item).key}")
            self._skip(f"{self._identify(item).key}: {bug!r}")

    def _pass_over(self, event: watch_protocol.SkippedEvent) -> str:
        self._skip(event.reason)
        if event.type == "DELETED" and event.name:
            self._store.remove(Key(event.namespace, event.name))
        return event.resource_version

    def _skip(self, reason: str) -> None:
        self.stats.skipped += 1
        log.warning(f"the cache of {self._store.resource.full_name} skipped an object: {reason}")

    def _failed(self, position: WatchPosition, error: KubeError) -> tuple[WatchPosition, WatchOutcome]:
        self.stats.failures += 1
        self.last_error = error
        log.info(f"the list or watch of {self._store.resource.full_name} failed: {error}")
        broke = WatchFailed(error)
        return watch_state.after(position, broke), broke

    def _alive(self) -> None:
        self._contact = self._clock.monotonic()
        self.last_error = None


def _raise_failure(batch: Sequence[watch_protocol.WatchEvent[T]]) -> None:
    """Raised only after the events before it are stored, because a resumed watch would otherwise go back."""
    for event in batch:
        if isinstance(event, watch_protocol.WatchError):
            raise event.error
