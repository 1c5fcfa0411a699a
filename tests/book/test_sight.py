"""The tracker never goes back behind our own version and is eventually up to date."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.book.sight import Newest, Sight, State


@dataclass
class World:
    """An object with a history, a late watch, and a client that reads and writes it.

    The tracker must not need positions in the history: it can only compare versions for equality.
    """

    sight: Sight = field(default_factory=Sight)
    history: list[State | None] = field(default_factory=lambda: [State("uid-0", "v0")])
    shown: int = 0
    ours: int = -1
    now: float = 0.0

    def __post_init__(self) -> None:
        self.sight.show(State("uid-0", "v0"))

    def foreign(self) -> None:
        self._append()

    def delete_and_create(self) -> None:
        self.history.append(None)
        self._append(uid=f"uid-{len(self.history)}")

    def write(self) -> None:
        """Like the writer: read first if needed, then compare and swap."""
        if self.sight.must_read:
            self.read()
        assert self.sight.mine == self.history[-1], "the write causes an avoidable conflict"
        self.sight.ask()
        self._append()
        self._answered()

    def write_blindly(self) -> None:
        """Another process writes before the watch delivers it: our write conflicts, and we read."""
        self._append()
        self.sight.ask()
        self.sight.fail()
        self.sight.doubt()
        self.read()

    def read(self) -> None:
        self.sight.ask()
        self._answered()

    def read_while_the_watch_moves(self) -> None:
        self.sight.ask()
        self.watch()
        self._append()
        self.watch()
        self._answered(position=len(self.history) - 2 if self.history[-2] is not None else None)

    def watch(self) -> None:
        """The watch delivers one more version."""
        if self.shown + 1 < len(self.history):
            self._show(self.shown + 1)

    def watch_catches_up(self) -> None:
        while self.shown + 1 < len(self.history):
            self.watch()

    def relist(self) -> None:
        """A list skips the versions in between."""
        self.now += 1
        asked_at = self.now
        if self.shown + 1 < len(self.history):
            self._show(len(self.history) - 1)
        self.sight.relisted(asked_at)

    def _append(self, uid: str = "") -> None:
        last = self.history[-1]
        self.history.append(State(uid or (last.uid if last else "?"), f"v{len(self.history)}"))

    def _answered(self, position: int | None = None) -> None:
        position = len(self.history) - 1 if position is None else position
        state = self.history[position]
        assert state is not None
        self.now += 1
        self.sight.answer(state, self.now)
        self.ours = position

    def _show(self, position: int) -> None:
        before, state = self.history[self.shown], self.history[position]
        self.shown = position
        if before is not None and (state is None or state.uid != before.uid):
            self.sight.vanish(before.uid)
        if state is not None:
            self.sight.show(state)

    def check(self) -> None:
        newest = self.sight.newest
        if newest is Newest.MINE:
            assert self.sight.mine is not None
            at = self.history.index(self.sight.mine)
        elif newest is Newest.SHOWN:
            at = self.shown
        else:
            return
        assert at >= self.ours, "went back behind our own read or write"


STEPS = (
    World.foreign,
    World.write,
    World.write_blindly,
    World.read,
    World.read_while_the_watch_moves,
    World.watch,
    World.watch_catches_up,
    World.relist,
    World.delete_and_create,
)


@given(st.lists(st.sampled_from(STEPS), max_size=30))
def test_it_never_goes_back_and_is_eventually_up_to_date(steps):
    world = World()
    for step in steps:
        if step is World.write and not world.sight.must_read and world.sight.mine != world.history[-1]:
            continue  # an unavoidable conflict: the watch has not delivered the version yet
        step(world)
        world.check()

    world.watch_catches_up()
    if world.sight.doubtful:  # the manager resolves it by a live read
        world.read()

    last = world.history[-1]
    assert last == (world.sight.mine if world.sight.newest is Newest.MINE else world.sight.shown)


OLD, MINE, NEW = State("u", "1"), State("u", "2"), State("u", "3")


def ours(shown_before: State | None = OLD) -> Sight:
    sight = Sight()
    if shown_before is not None:
        sight.show(shown_before)
    sight.ask()
    sight.answer(MINE, 10.0)
    return sight


def test_a_late_older_version_changes_nothing():
    sight = ours()
    sight.show(OLD)

    assert (sight.newest, sight.must_read) == (Newest.MINE, False)


def test_versions_after_ours_are_newer():
    sight = ours()
    sight.show(MINE)
    sight.show(NEW)

    assert (sight.newest, sight.must_read) == (Newest.SHOWN, True)


def test_a_version_delivered_before_the_answer_is_known():
    sight = Sight()
    sight.show(OLD)
    sight.ask()
    sight.show(MINE)
    sight.show(NEW)
    sight.answer(MINE, 10.0)

    assert (sight.newest, sight.must_read) == (Newest.SHOWN, True)


@pytest.mark.parametrize(
    ("asked_at", "newest"), [(9.0, Newest.MINE), (11.0, Newest.SHOWN)], ids=["before ours", "after ours"]
)
def test_a_list_that_skipped_our_version(asked_at, newest):
    sight = ours()
    sight.show(NEW)
    sight.relisted(asked_at)

    assert sight.newest is newest
    assert sight.must_read


def test_a_deleted_object_stays_deleted_although_the_watch_still_delivers_it():
    sight = ours()
    sight.ask()
    sight.absent()
    seen = [sight.newest]
    sight.show(MINE)
    seen.append(sight.newest)
    sight.vanish("u")
    sight.show(State("another", "9"))
    seen.append(sight.newest)

    assert seen == [Newest.NOTHING, Newest.NOTHING, Newest.SHOWN]


def test_a_late_deletion_of_a_predecessor_does_not_affect_our_object():
    sight = ours(State("before", "0"))
    sight.vanish("before")

    assert sight.newest is Newest.MINE


def test_an_object_deleted_before_our_answer_arrived():
    sight = Sight()
    sight.ask()
    sight.show(MINE)
    sight.vanish("u")
    sight.answer(MINE, 10.0)

    assert sight.newest is Newest.NOTHING
