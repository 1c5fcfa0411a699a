"""A store that is synced with a real cluster, with a record of its notifications."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar

from croupier.kube.backoff import Backoff
from croupier.kube.client import Client, Selection
from croupier.kube.reflector import Reflector
from croupier.kube.resource import Resource
from croupier.kube.resumption import Rules
from croupier.kube.store import Change, Store

T = TypeVar("T")

QUICK = Rules(backoff=Backoff(first=0.05, most=0.5), watch_seconds=300, silence=90)


class Mirror(Generic[T]):
    """`changes` has one entry per notification: the kind of change and the name of the object."""

    def __init__(self, store: Store[T], reflector: Reflector[T]) -> None:
        self.store = store
        self.reflector = reflector
        self.told: list[tuple[str, str]] = []
        store.subscribe(self._note)

    def names(self) -> list[str]:
        return sorted(key.name for key in tuple(self.store.keys()))

    def _note(self, change: Change[T]) -> None:
        what = "came" if change.old is None else "went" if change.new is None else "changed"
        self.told.append((what, change.key.name))


@asynccontextmanager
async def following(
    api: Client, resource: Resource[T], selection: Selection, rules: Rules = QUICK
) -> AsyncIterator[Mirror[T]]:
    store = Store(resource)
    reflector: Reflector[Any] = Reflector(api, store, selection=selection, rules=rules)
    mirror = Mirror(store, reflector)
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(30):
            await reflector.synced()
        yield mirror
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
