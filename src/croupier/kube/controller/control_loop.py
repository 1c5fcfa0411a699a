"""The control loop: changes in stores enqueue keys, and workers reconcile them.

Reconciling starts only after every cache has synced, because decisions on a
partial cache are wrong. A key is held back until the stores show the controller's
own writes for it. A reconcile that exceeds its timeout is cancelled, and
leadership is checked before each one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog

from croupier.kube.cache.expectations import Expectations, WrittenVersion
from croupier.kube.cache.informer import Syncable
from croupier.kube.cache.store import ObjectChange, Store
from croupier.kube.client import identity
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.identity import Key, ObjectIdentity
from croupier.kube.client.resource import Resource
from croupier.kube.controller import workqueue_state
from croupier.kube.controller.controller_run import (
    ALWAYS_LEADER,
    ControllerRun,
    LeaderCheck,
    RunOptions,
)
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.rate_limit import RateLimit
from croupier.kube.controller.reconcile import Reconcile
from croupier.kube.controller.workqueue_state import RETRY_BACKOFF, RETRY_RATE

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    workers: int = 4
    timeout: float = 60.0
    """Seconds that one reconcile may take."""
    resync: float | None = None
    """Interval in seconds at which all keys are reconciled, changed or not."""
    retries: Backoff = RETRY_BACKOFF
    retry_rate: RateLimit = RETRY_RATE


@dataclass(frozen=True, slots=True)
class _WatchedStore(Generic[K]):
    """One store and the mapping of its objects to keys, with the object type erased."""

    kind: str
    synced: Callable[[], Awaitable[None]]
    every_key: Callable[[], Iterator[K]]
    subscribe: Callable[[ControllerRun[K]], Callable[[], None]]
    find: Callable[[Key], object]


@dataclass(slots=True)
class Controller(Generic[K]):
    """`reconcile` gets the keys to which `watch` maps objects, fairly between the groups of `group`."""

    name: str
    reconcile: Reconcile[K]
    options: ControllerOptions = field(default_factory=ControllerOptions)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)
    expectations: Expectations[K] = field(default_factory=Expectations)
    group: Callable[[K], Hashable] = workqueue_state.namespace_of
    """Groups take turns. A controller whose keys tenants can invent keeps those apart from the others."""
    _sources: list[_WatchedStore[K]] = field(init=False, default_factory=list)
    _run: ControllerRun[K] | None = field(init=False, default=None)

    def watch(
        self, store: Store[T], cache: Syncable, keys: Callable[[T], Iterable[K]], *, within: float = 0.0
    ) -> None:
        """Reconcile `keys(object)` whenever an object of `store` is added, changed or deleted.

        `within` is a delay in seconds that collects several changes of one key into one reconcile.
        """
        kind = store.resource.full_name

        def subscribe(shift: ControllerRun[K]) -> Callable[[], None]:
            def changed(change: ObjectChange[T]) -> None:
                self._note(kind, change, shift)
                for version in (change.old, change.new):
                    for key in keys(version) if version is not None else ():
                        _enqueue(shift, key, within)

            def relisted(began: float) -> None:
                for key in self.expectations.relisted(kind, began):
                    shift.enqueue(key)

            return store.subscribe(changed, relisted=relisted)

        def every_key() -> Iterator[K]:
            return (key for item in tuple(store) for key in keys(item))

        self._sources.append(_WatchedStore(kind, cache.synced, every_key, subscribe, store.get))

    def wrote(self, key: K, resource: Resource[Any], written: Any) -> None:
        """To be called by the reconciler with the API server's response to each of its writes."""
        written_id = identity.reader(type(written))(written)
        if self._shows(resource.full_name, written_id):
            return  # a write without effect gets no new version, so no watch event follows
        version = WrittenVersion(resource.full_name, written_id.uid, written_id.version)
        self.expectations.wrote(key, version, asyncio.get_running_loop().time())

    def deleted(self, key: K, resource: Resource[Any], last: Any) -> None:
        """To be called after an immediate deletion; `last` is the last known object."""
        uid = identity.reader(type(last))(last).uid
        version = WrittenVersion(resource.full_name, uid, "").gone
        self.expectations.wrote(key, version, asyncio.get_running_loop().time())

    def add(self, key: K, *, within: float = 0.0) -> None:
        """Enqueue a key for a reason outside the stores, now or after `within` seconds.

        Does nothing while the controller does not run.
        """
        if self._run is None:
            return
        _enqueue(self._run, key, within)

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        """Run until `stop`, then finish the ready keys. Cancel to end immediately."""
        options = self.options
        shift = self._run = ControllerRun(
            RunOptions(self.name, options.timeout, options.retries, options.retry_rate, self.group),
            self.reconcile,
            self.expectations,
            metrics=self.metrics,
            leader_check=leader_check,
        )
        subscriptions = [source.subscribe(shift) for source in self._sources]
        try:
            if await self._synced(stop):
                log.info(f"controller {self.name} starts", controller=self.name, workers=self.options.workers)
                try:
                    await self._work(shift, stop)
                finally:
                    log.info(f"controller {self.name} has stopped", controller=self.name)
        finally:
            self._run = None
            for unsubscribe in subscriptions:
                unsubscribe()

    async def _synced(self, stop: asyncio.Event) -> bool:
        """Wait for all caches to sync; False if stopped before that."""
        stopped: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
        complete: asyncio.Future[Any] = asyncio.gather(*(source.synced() for source in self._sources))
        try:
            await asyncio.wait({stopped, complete}, return_when=asyncio.FIRST_COMPLETED)
            return not stop.is_set()
        finally:
            stopped.cancel()
            complete.cancel()

    async def _work(self, shift: ControllerRun[K], stop: asyncio.Event) -> None:
        self._enqueue_all(shift)
        resyncing = asyncio.create_task(self._resync(shift))
        closing = asyncio.create_task(_close_on_stop(shift, stop))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.options.workers):
                    group.create_task(shift.work())
        finally:
            resyncing.cancel()
            closing.cancel()

    async def _resync(self, shift: ControllerRun[K]) -> None:
        while self.options.resync is not None:
            await asyncio.sleep(self.options.resync)
            self._enqueue_all(shift)

    def _enqueue_all(self, shift: ControllerRun[K]) -> None:
        for source in self._sources:
            for key in source.every_key():
                shift.resync_key(key)

    def _shows(self, kind: str, wanted: ObjectIdentity) -> bool:
        """A store of that kind holds exactly this version."""
        cached = [source.find(wanted.key) for source in self._sources if source.kind == kind]
        return any(item is not None and identity.reader(type(item))(item) == wanted for item in cached)

    def _note(self, kind: str, change: ObjectChange[Any], shift: ControllerRun[K]) -> None:
        """Report the observed version to the expectations."""
        shown = change.new if change.new is not None else change.old
        shown_id = identity.reader(type(shown))(shown)
        version = WrittenVersion(kind, shown_id.uid, shown_id.version)
        for key in self.expectations.saw(version if change.new is not None else version.gone):
            shift.enqueue(key)


def _enqueue(shift: ControllerRun[K], key: K, within: float) -> None:
    if within:
        shift.enqueue_after(key, within)
    else:
        shift.enqueue(key)


async def _close_on_stop(shift: ControllerRun[Any], stop: asyncio.Event) -> None:
    await stop.wait()
    shift.close()
