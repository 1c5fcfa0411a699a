"""Decides which is newer: our last read or write of an object, or the watched object. No I/O.

A resourceVersion is opaque: it only tells whether two versions are the same, not which came first. The
order is derived from other rules: the watch delivers every version once and in order; a live read is not
older than any version watched before its request; an accepted write follows the version it replaced; a list
contains everything that was answered before its request. So until the watch has delivered our own last
version, watched versions are older or uncertain. Uncertainty is resolved when the watch catches up, by a
list, or by a live read.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class ObjectVersion(NamedTuple):
    uid: str
    version: str


class NewestSource(Enum):
    OWN = "our last read or write"
    WATCHED = "the watched object"
    NOTHING = "the object does not exist"


@dataclass(slots=True)
class VersionTracker:
    own: ObjectVersion | None = None
    """The version of our last read or write."""
    watched: ObjectVersion | None = None
    """The last watched version."""
    uncertain: bool = False
    """A watched version may be older or newer than ours."""
    _since: float = 0.0
    """When our last read or write was answered."""
    _settled: bool = True
    """The watch has delivered our last version, so later watched versions are newer."""
    _older: set[str] = field(default_factory=set)
    """Versions that precede our last one and that the watch may still deliver."""
    _flight: list[ObjectVersion] | None = None
    """During a request of ours: the versions watched at its start and since then."""
    _dead: set[str] = field(default_factory=set)
    """UIDs of deleted objects, which a delayed watch may still deliver."""

    @property
    def newest(self) -> NewestSource:
        if self.own is not None and not self._settled:
            return NewestSource.OWN
        if self.watched is not None and self.watched.uid not in self._dead:
            return NewestSource.OWN if self.watched == self.own else NewestSource.WATCHED
        return NewestSource.NOTHING

    @property
    def must_read(self) -> bool:
        """Our last version may be outdated or does not exist, so a write needs a live read first."""
        return self.own is None or self.uncertain or self.newest is not NewestSource.OWN

    def doubt(self) -> None:
        """The API server reported a conflict, or its answer to a write was lost."""
        self.uncertain = True

    def observe(self, state: ObjectVersion) -> None:
        """The watch or a list delivered this version."""
        self.watched = state
        if self._flight is not None:
            self._flight.append(state)
        if self.own is None or self._settled:
            return
        if state == self.own:
            self._settle()
        elif state.version not in self._older:
            self.uncertain = True

    def observe_deleted(self, uid: str) -> None:
        """The watch delivered the deletion of the object with this UID."""
        self.watched = None
        self._dead.add(uid)
        if self.own is not None and self.own.uid == uid:
            self.own = None
            self._settle()

    def relisted(self, asked_at: float) -> None:
        """A list requested at `asked_at` is complete; after our last answer, nothing watched is older."""
        if self.own is None or self._settled or asked_at < self._since:
            return
        if self.watched is None:
            self._dead.add(self.own.uid)
            self.own = None
        self._settle()

    def begin_request(self) -> None:
        """A live read or a write starts."""
        self._flight = [] if self.watched is None else [self.watched]

    def answer(self, state: ObjectVersion, now: float) -> None:
        """Our read or write was answered with this version."""
        during, self._flight = self._flight or [], None
        if state.uid in self._dead:  # created and deleted before our answer arrived
            self.own = None
            self._settle()
            return
        if self.own is not None:
            self._older.add(self.own.version)
        self.own, self._since = state, now
        if state in during:
            self._settle()
            return
        self._settled = False
        self._older.update(version.version for version in during[:1])
        self._older.discard(state.version)
        self.uncertain = any(version.version not in self._older for version in during)

    def fail_request(self) -> None:
        """The request ended without an object in its answer."""
        self._flight = None

    def observe_absent(self) -> None:
        """A live read found nothing, or we deleted the object; the object watched before is gone."""
        during, self._flight = self._flight or [], None
        if self.own is not None:
            self._dead.add(self.own.uid)
        self._dead.update(version.uid for version in during[:1])
        self.own = None
        self._settle()

    def _settle(self) -> None:
        self._settled, self.uncertain = True, False
        self._older.clear()
