"""A store that is synced with a real cluster, with a record of its notifications."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar

from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import ObjectChange, Store
from croupier.kube.cache.watch_state import ReflectorOptions
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.resource import Resource

T = TypeVar("T")

QUICK_RETRIES = ReflectorOptions(backoff=Backoff(first=0.05, most=0.5), watch_seconds=300, idle_timeout=90)


class WatchedStore(Generic[T]):
    """`changes` has one entry per notification: the kind of change and the name of the object."""

    def __init__(self, store: Store[T], reflector: Reflector[T]) -> None:
        self.store = store
        self.reflector = reflector
        self.changes: list[tuple[str, str]] = []
        store.subscribe(self._note)

    def names(self) -> list[str]:
        return sorted(key.name for key in tuple(self.store.keys()))

    def _note(self, change: ObjectChange[T]) -> None:
        what = "came" if change.old is None else "went" if change.new is None else "changed"
        self.changes.append((what, change.key.name))


@asynccontextmanager
async def watched_store(
    api: Client, resource: Resource[T], selection: Selection, rules: ReflectorOptions = QUICK_RETRIES
) -> AsyncIterator[WatchedStore[T]]:
    store = Store(resource)
    reflector: Reflector[Any] = Reflector(api, store, selection=selection, rules=rules)
    mirror = WatchedStore(store, reflector)
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(30):
            await reflector.synced()
        yield mirror
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
