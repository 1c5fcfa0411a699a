"""Which is newer: what we last read or wrote of an object, or what the watch shows. No I/O.

A resourceVersion only tells whether two states are the same, not which came first. What orders them
is known by other means: the watch shows every state once and in order; a live read is no older than
anything shown before it was asked for; a write that was accepted follows the state it was laid over;
a list holds everything that was answered before it was asked for. So until the watch has shown our
own last state, what it shows is older, or in doubt. Doubt is resolved by the watch catching up, by a
list, or by a live read.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class State(NamedTuple):
    uid: str
    version: str


class Newest(Enum):
    MINE = "what we last read or wrote"
    SHOWN = "what the watch shows"
    NOTHING = "there is no such object"


@dataclass(slots=True)
class Sight:
    mine: State | None = None
    """What we last read or wrote."""
    shown: State | None = None
    """What the watch shows now."""
    doubtful: bool = False
    """The watch showed something that may be older than ours, or newer."""
    _since: float = 0.0
    """When we had the answer that made `mine`."""
    _settled: bool = True
    """The watch has shown `mine`: whatever it shows from now on is newer."""
    _older: set[str] = field(default_factory=set)
    """Versions known to come before `mine`, which the watch may still have to show."""
    _flight: list[State] | None = None
    """While a request of ours is under way: what was shown when it began, and since."""
    _dead: set[str] = field(default_factory=set)
    """Uids that are gone for good, whatever a late watch still shows."""

    @property
    def newest(self) -> Newest:
        if self.mine is not None and not self._settled:
            return Newest.MINE
        if self.shown is not None and self.shown.uid not in self._dead:
            return Newest.MINE if self.shown == self.mine else Newest.SHOWN
        return Newest.NOTHING

    @property
    def must_read(self) -> bool:
        """What we last read or wrote may be outdated, or we have nothing to lay a write over."""
        return self.mine is None or self.doubtful or self.newest is not Newest.MINE

    def doubt(self) -> None:
        """The API server contradicted what we know, or its answer to a write was lost."""
        self.doubtful = True

    def show(self, state: State) -> None:
        """The watch, or a list, shows this state."""
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
        """The watch shows that the object of this uid is gone; it never comes back."""
        self.shown = None
        self._dead.add(uid)
        if self.mine is not None and self.mine.uid == uid:
            self.mine = None
            self._settle()

    def relisted(self, asked_at: float) -> None:
        """A list asked for then is in: if that was after our last answer, nothing shown is older."""
        if self.mine is None or self._settled or asked_at < self._since:
            return
        if self.shown is None:
            self._dead.add(self.mine.uid)
            self.mine = None
        self._settle()

    def ask(self) -> None:
        """A live read or a write begins."""
        self._flight = [] if self.shown is None else [self.shown]

    def answer(self, state: State, now: float) -> None:
        """This is what we read or wrote."""
        during, self._flight = self._flight or [], None
        if state.uid in self._dead:  # it came, and was gone before we heard that it came
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
        self._older.update(one.version for one in during[:1])
        self._older.discard(state.version)
        self.doubtful = any(one.version not in self._older for one in during)

    def fail(self) -> None:
        """The request ended without an answer that tells the state."""
        self._flight = None

    def absent(self) -> None:
        """A live read found nothing, or we deleted it: whatever was shown before is gone for good."""
        during, self._flight = self._flight or [], None
        if self.mine is not None:
            self._dead.add(self.mine.uid)
        self._dead.update(one.uid for one in during[:1])
        self.mine = None
        self._settle()

    def _settle(self) -> None:
        self._settled, self.doubtful = True, False
        self._older.clear()
