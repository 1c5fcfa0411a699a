"""The objects of one kind in memory, with indexes and subscribers. No I/O.

Reading costs a dict look-up. Only a real change is told to subscribers: an
object with the resourceVersion we already hold is the same object, however
often a list or a watch shows it.
"""

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from croupier.kube import identity
from croupier.kube.identity import Identity, Key
from croupier.kube.resource import Resource

T = TypeVar("T")
V = TypeVar("V", bound=Hashable)
A = TypeVar("A")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One object came (`old` is None), changed, or went (`new` is None)."""

    key: Key
    old: T | None
    new: T | None


class Index(Generic[T, V]):
    """Objects by a value computed from them, kept up with every change until it is closed."""

    def __init__(self, store: "Store[T]", values: Callable[[T], Iterable[V]]) -> None:
        self._store = store
        self._values = values
        self._held: dict[V, dict[Key, None]] | None = None
        self.open()

    @property
    def _keys(self) -> dict[V, dict[Key, None]]:
        if self._held is None:  # an old answer would be taken for a true one
            raise RuntimeError(f"an index of {self._store.resource.full_name} is used after it was closed")
        return self._held

    def open(self) -> None:
        """Keep it up from now on; of what is here already, too. An open one stays as it is."""
        if self._held is None:
            self._held = {}
            self._store.keep(self)

    def close(self) -> None:
        """Keep it up no longer: what nobody reads shall cost nothing."""
        if self._held is not None:
            self._held = None
            self._store.drop(self)

    def keys(self, value: V) -> Collection[Key]:
        """A live view: copy it before awaiting anything."""
        return self._keys.get(value, {}).keys()

    def get(self, value: V) -> list[T]:
        return [found for key in self.keys(value) if (found := self._store.get(key)) is not None]

    def values(self) -> Collection[V]:
        return self._keys.keys()

    def move(self, key: Key, old: T | None, new: T | None) -> None:
        """For the store alone: `old` became `new`."""
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
def kept(*indexes: Index[Any, Any]) -> Iterator[None]:
    """Keep them up meanwhile and no longer: who works in terms of office would leave some with each."""
    for one in indexes:
        one.open()
    try:
        yield
    finally:
        for one in indexes:
            one.close()


@dataclass(frozen=True, slots=True)
class _Subscriber(Generic[T]):
    changed: Callable[[Change[T]], None]
    relisted: Callable[[float], None] | None


class Store(Generic[T]):
    def __init__(self, resource: Resource[T]) -> None:
        self.resource = resource
        self._identify: Callable[[Any], Identity] = identity.reader(resource.type)
        self._objects: dict[Key, T] = {}
        self._indexes: list[Index[T, Any]] = []
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

    def index(self, values: Callable[[T], Iterable[V]]) -> Index[T, V]:
        """A new index by `values`, a pure function; also of what is here already."""
        return Index(self, values)

    def keep(self, index: Index[T, Any]) -> None:
        """For indexes alone: `index` hears of what is here, and of every change."""
        for key, found in self._objects.items():
            index.move(key, None, found)
        self._indexes.append(index)

    def drop(self, index: Index[T, Any]) -> None:
        self._indexes.remove(index)

    @property
    def load(self) -> tuple[int, int]:
        """How many indexes and subscribers every change is told to."""
        return len(self._indexes), len(self._subscribers)

    def subscribe(
        self, changed: Callable[[Change[T]], None], *, relisted: Callable[[float], None] | None = None
    ) -> Callable[[], None]:
        """Have every change from now on told to `changed`; the result ends that.

        `relisted` hears when a whole list is in, with the moment (monotonic) it was asked for.
        """
        subscriber = _Subscriber(changed, relisted)
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber) if subscriber in self._subscribers else None

    def put(self, new: T) -> bool:
        """Store `new`; false when we hold this very version already."""
        who = self._identify(new)
        old = self._objects.get(who.key)
        if old is None:
            self._set(who.key, None, new)
            return True
        was = self._identify(old)
        if was.version == who.version and was.uid == who.uid:
            return False
        if was.uid != who.uid:  # the old one died unseen, and this is another of its name
            self.remove(who.key)
            old = None
        self._set(was.key, old, new)
        return True

    def remove(self, key: Key) -> bool:
        old = self._objects.get(key)
        if old is None:
            return False
        self._set(key, old, None)
        return True

    def missing_from(self, items: Iterable[T]) -> list[Key]:
        """The keys we hold that `items`, a whole list, does not have."""
        listed = {self._identify(item).key for item in items}
        return [key for key in self._objects if key not in listed]

    def relisted(self, asked_at: float) -> None:
        """For the reflector: a whole list, asked for at that moment, is in."""
        for subscriber in tuple(self._subscribers):
            if subscriber.relisted is not None:
                self._guarded(subscriber.relisted, asked_at)

    def _set(self, key: Key, old: T | None, new: T | None) -> None:
        for index in self._indexes:
            index.move(key, old, new)
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        if self._subscribers:
            self._tell(Change(key, old, new))

    def _tell(self, change: Change[T]) -> None:
        for subscriber in tuple(self._subscribers):
            self._guarded(subscriber.changed, change)

    def _guarded(self, told: Callable[[A], None], what: A) -> None:
        try:
            told(what)
        except Exception:  # one subscriber's mistake must not blind the others
            log.exception("a subscriber to %s failed on %s", self.resource.full_name, what)
