"""Read your own writes: a key rests until the cache has seen what we wrote for it.

A reconciler that writes and is called again at once would decide from a cache
that does not know of the write yet, and write again. So it says here what it
wrote, and its key is held back until the watch has shown that very version.

resourceVersion is opaque, so there is no "newer": a write counts as seen when
its exact version came by, when the object is gone (deleted, or replaced by one
with another uid), or when a list that began after the write has been stored.
The watch is often faster than the answer to the write; the last versions that
came by are therefore remembered for a while. An expectation that is not met by
its deadline is dropped and counted: better to act on an old cache, where the
API server's compare-and-swap still guards us, than never.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

PATIENCE = 30.0
REMEMBERED = 8192


class Version(NamedTuple):
    """One state of one object. `kind` names the store it will show up in."""

    kind: str
    uid: str
    version: str

    @property
    def gone(self) -> "Version":
        """The state after the last: deleted for good."""
        return self._replace(version="")


@dataclass(frozen=True, slots=True)
class _Expected:
    seen: Version
    since: float


@dataclass(slots=True)
class Expectations(Generic[K]):
    """Of one controller. `missed` counts those given up at their deadline."""

    patience: float = PATIENCE
    missed: int = field(init=False, default=0)
    _by_key: dict[K, set[_Expected]] = field(init=False, default_factory=dict)
    _by_object: dict[tuple[str, str], set[K]] = field(init=False, default_factory=dict)
    _recent: OrderedDict[Version, None] = field(init=False, default_factory=OrderedDict)

    def wrote(self, key: K, version: Version, now: float) -> None:
        """`key` wrote, and this is the state the API server answered with."""
        if version in self._recent or version.gone in self._recent:
            return
        self._by_key.setdefault(key, set()).add(_Expected(version, now))
        self._by_object.setdefault(version[:2], set()).add(key)

    def saw(self, version: Version) -> list[K]:
        """The watch showed this state; answers with the keys that need wait no longer."""
        self._remember(version)
        if version == version.gone:  # nothing else will ever be seen of it
            return self._meet(version[:2], lambda _: True)
        return self._meet(version[:2], lambda expected: expected.seen == version)

    def relisted(self, kind: str, began: float) -> list[K]:
        """A list of `kind` that was asked for at `began` is stored: earlier writes are in it."""
        objects = [each for each in self._by_object if each[0] == kind]
        return [key for each in objects for key in self._meet(each, lambda one: one.since <= began)]

    def holds(self, key: K, now: float) -> float | None:
        """Seconds `key` must wait at most, or None when it may be reconciled."""
        expected = self._by_key.get(key)
        if not expected:
            return None
        late = {one for one in expected if one.since + self.patience <= now}
        left = [one.since + self.patience - now for one in expected - late]
        self.missed += len(late)
        self._drop(key, late)
        return max(left, default=None)

    def forget(self, key: K) -> None:
        """Expect nothing more for `key`."""
        self._drop(key, set(self._by_key.get(key, ())))

    @property
    def held(self) -> int:
        """How many keys are held back."""
        return len(self._by_key)

    def _remember(self, version: Version) -> None:
        self._recent[version] = None
        if len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)

    def _meet(self, object_: tuple[str, str], met: Callable[[_Expected], bool]) -> list[K]:
        freed = []
        for key in tuple(self._by_object.get(object_, ())):
            self._drop(key, {one for one in self._by_key[key] if one.seen[:2] == object_ and met(one)})
            if key not in self._by_key:
                freed.append(key)
        return freed

    def _drop(self, key: K, dropped: set[_Expected]) -> None:
        left = self._by_key.get(key, set()) - dropped
        for object_ in {one.seen[:2] for one in dropped} - {one.seen[:2] for one in left}:
            keys = self._by_object[object_]
            keys.discard(key)
            if not keys:
                del self._by_object[object_]
        if left:
            self._by_key[key] = left
        else:
            self._by_key.pop(key, None)
