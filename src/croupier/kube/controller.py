"""From what changed to what is done about it: stores, keys, queue, workers, reconcile.

Nothing is reconciled before every store is complete: half a world leads to
wrong decisions. A key whose own writes the stores have not shown yet is held
back; a reconcile that takes too long is cut off; and before each one the
controller asks whether it may still act.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import structlog

from croupier.kube import identity
from croupier.kube.backlog import RETRIES, RETRY_RATE
from croupier.kube.backoff import Backoff
from croupier.kube.bucket import Rate
from croupier.kube.expectations import Expectations, Version
from croupier.kube.identity import Identity, Key
from croupier.kube.reconcile import Reconcile
from croupier.kube.resource import Resource
from croupier.kube.shift import ANYONE, Authority, Gauge, Rules, Shift, Unmeasured
from croupier.kube.store import Change, Store

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

log = structlog.get_logger(__name__)


class Cache(Protocol):
    """The part of a reflector that a controller waits for."""

    async def synced(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Options:
    workers: int = 4
    timeout: float = 60.0
    """Seconds one reconcile may take."""
    resync: float | None = None
    """Every so many seconds all keys are looked at, changed or not."""
    retries: Backoff = RETRIES
    retry_rate: Rate = RETRY_RATE


@dataclass(frozen=True, slots=True)
class _Source(Generic[K]):
    """One store and how its objects map to keys, the object type folded away."""

    kind: str
    synced: Callable[[], Awaitable[None]]
    every_key: Callable[[], Iterator[K]]
    subscribe: Callable[[Shift[K]], Callable[[], None]]
    find: Callable[[Key], object]


@dataclass(slots=True)
class Controller(Generic[K]):
    """`reconcile` gets keys of the sort that `watch` maps objects to."""

    name: str
    reconcile: Reconcile[K]
    options: Options = field(default_factory=Options)
    gauge: Gauge = field(default_factory=Unmeasured)
    expectations: Expectations[K] = field(default_factory=Expectations)
    _sources: list[_Source[K]] = field(init=False, default_factory=list)
    _shift: Shift[K] | None = field(init=False, default=None)

    def watch(
        self, store: Store[T], cache: Cache, keys: Callable[[T], Iterable[K]], *, within: float = 0.0
    ) -> None:
        """Reconcile `keys(object)` whenever an object of `store` comes, changes or goes.

        At once, or within so many seconds where several objects of one key mostly change together.
        """
        kind = store.resource.full_name

        def subscribe(shift: Shift[K]) -> Callable[[], None]:
            def changed(change: Change[T]) -> None:
                self._note(kind, change, shift)
                for found in (change.old, change.new):
                    for key in keys(found) if found is not None else ():
                        _wake(shift, key, within)

            def relisted(began: float) -> None:
                for key in self.expectations.relisted(kind, began):
                    shift.wake(key)

            return store.subscribe(changed, relisted=relisted)

        def every_key() -> Iterator[K]:
            return (key for found in tuple(store) for key in keys(found))

        self._sources.append(_Source(kind, cache.synced, every_key, subscribe, store.get))

    def wrote(self, key: K, resource: Resource[Any], written: Any) -> None:
        """To be called by the reconciler with what the API server answered to a write of its own."""
        who = identity.reader(type(written))(written)
        if self._shows(resource.full_name, who):
            return  # a write that changed nothing gets no new version, and no watch will tell of it
        version = Version(resource.full_name, who.uid, who.version)
        self.expectations.wrote(key, version, asyncio.get_running_loop().time())

    def deleted(self, key: K, resource: Resource[Any], last: Any) -> None:
        """To be called after a deletion that takes effect at once; `last` is the object as last seen."""
        who = identity.reader(type(last))(last)
        version = Version(resource.full_name, who.uid, "").gone
        self.expectations.wrote(key, version, asyncio.get_running_loop().time())

    def add(self, key: K, *, within: float = 0.0) -> None:
        """Have a key reconciled for a reason no store knows of, at once or within so many seconds.

        Nothing happens while we do not run.
        """
        if self._shift is None:
            return
        _wake(self._shift, key, within)

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        """Work until `stop`, then finish what is ready. Cancel to end at once."""
        shift = self._shift = Shift(
            Rules(self.name, self.options.timeout, self.options.retries, self.options.retry_rate),
            self.reconcile,
            self.expectations,
            gauge=self.gauge,
            authority=authority,
        )
        subscriptions = [source.subscribe(shift) for source in self._sources]
        try:
            if await self._synced(stop):
                log.info("controller starts", controller=self.name, workers=self.options.workers)
                await self._work(shift, stop)
        finally:
            self._shift = None
            for unsubscribe in subscriptions:
                unsubscribe()

    async def _synced(self, stop: asyncio.Event) -> bool:
        """All stores are complete; False if we were stopped before."""
        stopped: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
        complete: asyncio.Future[Any] = asyncio.gather(*(source.synced() for source in self._sources))
        try:
            await asyncio.wait({stopped, complete}, return_when=asyncio.FIRST_COMPLETED)
            return not stop.is_set()
        finally:
            stopped.cancel()
            complete.cancel()

    async def _work(self, shift: Shift[K], stop: asyncio.Event) -> None:
        self._wake_all(shift)
        resyncing = asyncio.create_task(self._resync(shift))
        closing = asyncio.create_task(_close(shift, stop))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.options.workers):
                    group.create_task(shift.work())
        finally:
            resyncing.cancel()
            closing.cancel()

    async def _resync(self, shift: Shift[K]) -> None:
        while self.options.resync is not None:
            await asyncio.sleep(self.options.resync)
            self._wake_all(shift)

    def _wake_all(self, shift: Shift[K]) -> None:
        for source in self._sources:
            for key in source.every_key():
                shift.look_again(key)

    def _shows(self, kind: str, who: Identity) -> bool:
        """A store of that kind holds this very version."""
        found = [source.find(who.key) for source in self._sources if source.kind == kind]
        return any(one is not None and identity.reader(type(one))(one) == who for one in found)

    def _note(self, kind: str, change: Change[Any], shift: Shift[K]) -> None:
        """Tell the expectations which state the watch showed."""
        shown = change.new if change.new is not None else change.old
        who = identity.reader(type(shown))(shown)
        version = Version(kind, who.uid, who.version)
        for key in self.expectations.saw(version if change.new is not None else version.gone):
            shift.wake(key)


def _wake(shift: Shift[K], key: K, within: float) -> None:
    if within:
        shift.wake_after(key, within)
    else:
        shift.wake(key)


async def _close(shift: Shift[Any], stop: asyncio.Event) -> None:
    await stop.wait()
    shift.close()
