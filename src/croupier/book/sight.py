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


class State(NamedTuple):
    uid: str
    version: str


class Newest(Enum):
    MINE = "our last read or write"
    SHOWN = "the watched object"
    NOTHING = "the object does not exist"


@dataclass(slots=True)
class Sight:
    mine: State | None = None
    """The version of our last read or write."""
    shown: State | None = None
    """The last watched version."""
    doubtful: bool = False
    """A watched version may be older or newer than ours."""
    _since: float = 0.0
    """When our last read or write was answered."""
    _settled: bool = True
    """The watch has delivered our last version, so later watched versions are newer."""
    _older: set[str] = field(default_factory=set)
    """Versions that precede our last one and that the watch may still deliver."""
    _flight: list[State] | None = None
    """During a request of ours: the versions watched at its start and since then."""
    _dead: set[str] = field(default_factory=set)
    """UIDs of deleted objects, which a delayed watch may still deliver."""

    @property
    def newest(self) -> Newest:
        if self.mine is not None and not self._settled:
            return Newest.MINE
        if self.shown is not None and self.shown.uid not in self._dead:
            return Newest.MINE if self.shown == self.mine else Newest.SHOWN
        return Newest.NOTHING

    @property
    def must_read(self) -> bool:
        """Our last version may be outdated or does not exist, so a write needs a live read first."""
        return self.mine is None or self.doubtful or self.newest is not Newest.MINE

    def doubt(self) -> None:
        """The API server reported a conflict, or its answer to a write was lost."""
        self.doubtful = True

    def show(self, state: State) -> None:
        """The watch or a list delivered this version."""
        self.shown = state
        if self._flight is not None:
            self._flight.append(state)
        if self.mine is None or self._settled:
            return
        if state == self.mine:
            self._settle()
        elif state.version not in self._older:
            self.doubtful = True

    def vanish(self, uid: str) -> None:
        """The watch delivered the deletion of the object with this UID."""
        self.shown = None
        self._dead.add(uid)
        if self.mine is not None and self.mine.uid == uid:
            self.mine = None
            self._settle()

    def relisted(self, asked_at: float) -> None:
        """A list requested at `asked_at` is complete; after our last answer, nothing watched is older."""
        if self.mine is None or self._settled or asked_at < self._since:
            return
        if self.shown is None:
            self._dead.add(self.mine.uid)
            self.mine = None
        self._settle()

    def ask(self) -> None:
        """A live read or a write starts."""
        self._flight = [] if self.shown is None else [self.shown]

    def answer(self, state: State, now: float) -> None:
        """Our read or write was answered with this version."""
        during, self._flight = self._flight or [], None
        if state.uid in self._dead:  # created and deleted before our answer arrived
            self.mine = None
            self._settle()
            return
        if self.mine is not None:
            self._older.add(self.mine.version)
        self.mine, self._since = state, now
        if state in during:
            self._settle()
            return
        self._settled = False
        self._older.update(version.version for version in during[:1])
        self._older.discard(state.version)
        self.doubtful = any(version.version not in self._older for version in during)

    def fail(self) -> None:
        """The request ended without an object in its answer."""
        self._flight = None

    def absent(self) -> None:
        """A live read found nothing, or we deleted the object; the object watched before is gone."""
        during, self._flight = self._flight or [], None
        if self.mine is not None:
            self._dead.add(self.mine.uid)
        self._dead.update(version.uid for version in during[:1])
        self.mine = None
        self._settle()

    def _settle(self) -> None:
        self._settled, self.doubtful = True, False
        self._older.clear()
