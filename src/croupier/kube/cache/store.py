"""An in-memory store of the objects of one kind, with indexes and subscribers. No I/O.

Reading costs a dict lookup. Subscribers are notified only of real changes: an object
with the same resourceVersion is the same object, however often a list or a watch
shows it.
"""

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from croupier.kube.client import identity
from croupier.kube.client.identity import Key, ObjectIdentity
from croupier.kube.client.resource import Resource

T = TypeVar("T")
V = TypeVar("V", bound=Hashable)
A = TypeVar("A")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectChange(Generic[T]):
    """One object was added (`old` is None), changed, or deleted (`new` is None)."""

    key: Key
    old: T | None
    new: T | None


class StoreIndex(Generic[T, V]):
    """Objects by a computed value, updated with every change until the index is closed."""

    def __init__(self, store: "Store[T]", values: Callable[[T], Iterable[V]]) -> None:
        self._store = store
        self._values = values
        self._held: dict[V, dict[Key, None]] | None = None
        self.open()

    @property
    def _keys(self) -> dict[V, dict[Key, None]]:
        if self._held is None:  # its content would be outdated
            raise RuntimeError(f"an index of {self._store.resource.full_name} was used after it was closed")
        return self._held

    def open(self) -> None:
        """Build the index and keep it up to date. No effect on an open index."""
        if self._held is None:
            self._held = {}
            self._store.keep(self)

    def close(self) -> None:
        """Stop updating the index, so that an unused index costs nothing."""
        if self._held is not None:
            self._held = None
            self._store.drop(self)

    def keys(self, value: V) -> Collection[Key]:
        """A live view: copy it before an await."""
        return self._keys.get(value, {}).keys()

    def get(self, value: V) -> list[T]:
        return [item for key in self.keys(value) if (item := self._store.get(key)) is not None]

    def values(self) -> Collection[V]:
        return self._keys.keys()

    def update(self, key: Key, old: T | None, new: T | None) -> None:
        """Called by the store: `old` became `new`."""
        before = set(self._values(old)) if old is not None else set()
        after = set(self._values(new)) if new is not None else set()
        keys = self._keys
        for value in before - after:
            held = keys[value]
            del held[key]
            if not held:
                del keys[value]
        for value in after - before:
            keys.setdefault(value, {})[key] = None


@contextmanager
def open_indexes(*indexes: StoreIndex[Any, Any]) -> Iterator[None]:
    """Open the indexes for the duration of the block, so that they do not accumulate over leaderships."""
    for index in indexes:
        index.open()
    try:
        yield
    finally:
        for index in indexes:
            index.close()


@dataclass(frozen=True, slots=True)
class _Subscriber(Generic[T]):
    changed: Callable[[ObjectChange[T]], None]
    relisted: Callable[[float], None] | None


class Store(Generic[T]):
    def __init__(self, resource: Resource[T]) -> None:
        self.resource = resource
        self._identify: Callable[[Any], ObjectIdentity] = identity.reader(resource.type)
        self._objects: dict[Key, T] = {}
        self._indexes: list[StoreIndex[T, Any]] = []
        self._subscribers: list[_Subscriber[T]] = []

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def keys(self) -> Collection[Key]:
        return self._objects.keys()

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def named(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get(Key(namespace, name))

    def index(self, values: Callable[[T], Iterable[V]]) -> StoreIndex[T, V]:
        """A new index of all objects by `values`, a pure function."""
        return StoreIndex(self, values)

    def keep(self, index: StoreIndex[T, Any]) -> None:
        """Called by indexes: fill `index` and update it with every change."""
        for key, item in self._objects.items():
            index.update(key, None, item)
        self._indexes.append(index)

    def drop(self, index: StoreIndex[T, Any]) -> None:
        self._indexes.remove(index)

    @property
    def load(self) -> tuple[int, int]:
        """The number of indexes and of subscribers."""
        return len(self._indexes), len(self._subscribers)

    def subscribe(
        self, changed: Callable[[ObjectChange[T]], None], *, relisted: Callable[[float], None] | None = None
    ) -> Callable[[], None]:
        """Call `changed` with every change from now on; the returned function unsubscribes.

        `relisted` is called after each complete list with the monotonic time of its request.
        """
        subscriber = _Subscriber(changed, relisted)
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber) if subscriber in self._subscribers else None

    def put(self, new: T) -> bool:
        """Store `new`; false if the store already has this version."""
        new_id = self._identify(new)
        old = self._objects.get(new_id.key)
        if old is None:
            self._set(new_id.key, None, new)
            return True
        old_id = self._identify(old)
        if old_id.version == new_id.version and old_id.uid == new_id.uid:
            return False
        if old_id.uid != new_id.uid:  # the old object was deleted unobserved, and recreated
            self.remove(new_id.key)
            old = None
        self._set(old_id.key, old, new)
        return True

    def remove(self, key: Key) -> bool:
        old = self._objects.get(key)
        if old is None:
            return False
        self._set(key, old, None)
        return True

    def missing_from(self, items: Iterable[T]) -> list[Key]:
        """The stored keys that are not in `items`, a complete list."""
        listed = {self._identify(item).key for item in items}
        return [key for key in self._objects if key not in listed]

    def relisted(self, asked_at: float) -> None:
        """Called by the reflector: a complete list, requested at `asked_at`, is stored."""
        for subscriber in tuple(self._subscribers):
            if subscriber.relisted is not None:
                self._guarded(subscriber.relisted, asked_at)

    def _set(self, key: Key, old: T | None, new: T | None) -> None:
        for index in self._indexes:
            index.update(key, old, new)
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        if self._subscribers:
            self._notify(ObjectChange(key, old, new))

    def _notify(self, change: ObjectChange[T]) -> None:
        for subscriber in tuple(self._subscribers):
            self._guarded(subscriber.changed, change)

    def _guarded(self, callback: Callable[[A], None], argument: A) -> None:
        try:
            callback(argument)
        except Exception:  # the failure of one subscriber must not affect the others
            log.exception(f"a subscriber to {self.resource.full_name} failed on {argument}")
