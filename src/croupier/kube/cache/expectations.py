"""Read your own writes: a key is held back until the cache shows the controller's writes for it.

A reconciler that writes and runs again immediately would decide from a cache
without that write, and write again. So it records each write here, and its key is
held back until the watch has shown exactly that version.

resourceVersion is opaque, so versions have no order. A write counts as observed
when its exact version was observed, when the object is gone (deleted, or replaced
by one with another uid), or when a list that began after the write is stored. The
watch event often arrives before the response to the write, so recently observed
versions are remembered. An expectation that is not met by its deadline is dropped
and counted: acting on an old cache, guarded by the API server's compare-and-swap,
is better than never acting.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

TIMEOUT = 30.0
MAX_RECENT = 8192


class WrittenVersion(NamedTuple):
    """One version of one object. `kind` names the store that will show it."""

    kind: str
    uid: str
    version: str

    @property
    def gone(self) -> "WrittenVersion":
        """The version that stands for the deleted object."""
        return self._replace(version="")


@dataclass(frozen=True, slots=True)
class _Expected:
    seen: WrittenVersion
    since: float


@dataclass(slots=True)
class Expectations(Generic[K]):
    """The expectations of one controller. `missed` counts those dropped at their deadline."""

    timeout: float = TIMEOUT
    missed: int = field(init=False, default=0)
    _by_key: dict[K, set[_Expected]] = field(init=False, default_factory=dict)
    _by_object: dict[tuple[str, str], set[K]] = field(init=False, default_factory=dict)
    _recent: OrderedDict[WrittenVersion, None] = field(init=False, default_factory=OrderedDict)

    def wrote(self, key: K, version: WrittenVersion, now: float) -> None:
        """Expect `version`, the API server's response to a write for `key`."""
        if version in self._recent or version.gone in self._recent:
            return
        self._by_key.setdefault(key, set()).add(_Expected(version, now))
        self._by_object.setdefault(version[:2], set()).add(key)

    def saw(self, version: WrittenVersion) -> list[K]:
        """Record that the watch showed `version`; return the keys that are no longer held back."""
        self._remember(version)
        if version == version.gone:  # no other version of the object will follow
            return self._meet(version[:2], lambda _: True)
        return self._meet(version[:2], lambda expected: expected.seen == version)

    def relisted(self, kind: str, began: float) -> list[K]:
        """A list of `kind` that was requested at `began` is stored: it contains all earlier writes."""
        objects = [object_ for object_ in self._by_object if object_[0] == kind]
        return [
            key
            for object_ in objects
            for key in self._meet(object_, lambda expected: expected.since <= began)
        ]

    def holds(self, key: K, now: float) -> float | None:
        """The longest time in seconds that `key` is held back, or None if it may be reconciled."""
        expected = self._by_key.get(key)
        if not expected:
            return None
        late = {write for write in expected if write.since + self.timeout <= now}
        left = [write.since + self.timeout - now for write in expected - late]
        self.missed += len(late)
        self._drop(key, late)
        return max(left, default=None)

    def forget(self, key: K) -> None:
        """Drop all expectations of `key`."""
        self._drop(key, set(self._by_key.get(key, ())))

    @property
    def held(self) -> int:
        """Number of keys that are held back."""
        return len(self._by_key)

    def _remember(self, version: WrittenVersion) -> None:
        self._recent[version] = None
        if len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)

    def _meet(self, object_: tuple[str, str], met: Callable[[_Expected], bool]) -> list[K]:
        freed = []
        for key in tuple(self._by_object.get(object_, ())):
            self._drop(
                key, {write for write in self._by_key[key] if write.seen[:2] == object_ and met(write)}
            )
            if key not in self._by_key:
                freed.append(key)
        return freed

    def _drop(self, key: K, dropped: set[_Expected]) -> None:
        left = self._by_key.get(key, set()) - dropped
        for object_ in {write.seen[:2] for write in dropped} - {write.seen[:2] for write in left}:
            keys = self._by_object[object_]
            keys.discard(key)
            if not keys:
                del self._by_object[object_]
        if left:
            self._by_key[key] = left
        else:
            self._by_key.pop(key, None)
