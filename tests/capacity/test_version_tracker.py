"""The tracker never goes back behind our own version and is eventually up to date."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.capacity.version_tracker import NewestSource, ObjectVersion, VersionTracker


@dataclass
class World:
    """An object with a history, a late watch, and a client that reads and writes it.

    The tracker must not need positions in the history: it can only compare versions for equality.
    """

    versions: VersionTracker = field(default_factory=VersionTracker)
    history: list[ObjectVersion | None] = field(default_factory=lambda: [ObjectVersion("uid-0", "v0")])
    watched: int = 0
    ours: int = -1
    now: float = 0.0

    def __post_init__(self) -> None:
        self.versions.observe(ObjectVersion("uid-0", "v0"))

    def foreign(self) -> None:
        self._append()

    def delete_and_create(self) -> None:
        self.history.append(None)
        self._append(uid=f"uid-{len(self.history)}")

    def write(self) -> None:
        """Like the writer: read first if needed, then compare and swap."""
        if self.versions.must_read:
            self.read()
        assert self.versions.own == self.history[-1], "the write causes an avoidable conflict"
        self.versions.begin_request()
        self._append()
        self._answered()

    def write_blindly(self) -> None:
        """Another process writes before the watch delivers it: our write conflicts, and we read."""
        self._append()
        self.versions.begin_request()
        self.versions.fail_request()
        self.versions.doubt()
        self.read()

    def read(self) -> None:
        self.versions.begin_request()
        self._answered()

    def read_while_the_watch_moves(self) -> None:
        self.versions.begin_request()
        self.watch()
        self._append()
        self.watch()
        self._answered(position=len(self.history) - 2 if self.history[-2] is not None else None)

    def watch(self) -> None:
        """The watch delivers one more version."""
        if self.watched + 1 < len(self.history):
            self._show(self.watched + 1)

    def watch_catches_up(self) -> None:
        while self.watched + 1 < len(self.history):
            self.watch()

    def relist(self) -> None:
        """A list skips the versions in between."""
        self.now += 1
        asked_at = self.now
        if self.watched + 1 < len(self.history):
            self._show(len(self.history) - 1)
        self.versions.relisted(asked_at)

    def _append(self, uid: str = "") -> None:
        last = self.history[-1]
        self.history.append(ObjectVersion(uid or (last.uid if last else "?"), f"v{len(self.history)}"))

    def _answered(self, position: int | None = None) -> None:
        position = len(self.history) - 1 if position is None else position
        state = self.history[position]
        assert state is not None
        self.now += 1
        self.versions.answer(state, self.now)
        self.ours = position

    def _show(self, position: int) -> None:
        before, state = self.history[self.watched], self.history[position]
        self.watched = position
        if before is not None and (state is None or state.uid != before.uid):
            self.versions.observe_deleted(before.uid)
        if state is not None:
            self.versions.observe(state)

    def check(self) -> None:
        newest = self.versions.newest
        if newest is NewestSource.OWN:
            assert self.versions.own is not None
            at = self.history.index(self.versions.own)
        elif newest is NewestSource.WATCHED:
            at = self.watched
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
        if step is World.write and not world.versions.must_read and world.versions.own != world.history[-1]:
            continue  # an unavoidable conflict: the watch has not delivered the version yet
        step(world)
        world.check()

    world.watch_catches_up()
    if world.versions.uncertain:  # the manager resolves it by a live read
        world.read()

    last = world.history[-1]
    assert last == (
        world.versions.own if world.versions.newest is NewestSource.OWN else world.versions.watched
    )


OLD, MINE, NEW = ObjectVersion("u", "1"), ObjectVersion("u", "2"), ObjectVersion("u", "3")


def ours(shown_before: ObjectVersion | None = OLD) -> VersionTracker:
    sight = VersionTracker()
    if shown_before is not None:
        sight.observe(shown_before)
    sight.begin_request()
    sight.answer(MINE, 10.0)
    return sight


def test_a_late_older_version_changes_nothing():
    sight = ours()
    sight.observe(OLD)

    assert (sight.newest, sight.must_read) == (NewestSource.OWN, False)


def test_versions_after_ours_are_newer():
    sight = ours()
    sight.observe(MINE)
    sight.observe(NEW)

    assert (sight.newest, sight.must_read) == (NewestSource.WATCHED, True)


def test_a_version_delivered_before_the_answer_is_known():
    sight = VersionTracker()
    sight.observe(OLD)
    sight.begin_request()
    sight.observe(MINE)
    sight.observe(NEW)
    sight.answer(MINE, 10.0)

    assert (sight.newest, sight.must_read) == (NewestSource.WATCHED, True)


@pytest.mark.parametrize(
    ("asked_at", "newest"),
    [(9.0, NewestSource.OWN), (11.0, NewestSource.WATCHED)],
    ids=["before ours", "after ours"],
)
def test_a_list_that_skipped_our_version(asked_at, newest):
    sight = ours()
    sight.observe(NEW)
    sight.relisted(asked_at)

    assert sight.newest is newest
    assert sight.must_read


def test_a_deleted_object_stays_deleted_although_the_watch_still_delivers_it():
    sight = ours()
    sight.begin_request()
    sight.observe_absent()
    seen = [sight.newest]
    sight.observe(MINE)
    seen.append(sight.newest)
    sight.observe_deleted("u")
    sight.observe(ObjectVersion("another", "9"))
    seen.append(sight.newest)

    assert seen == [NewestSource.NOTHING, NewestSource.NOTHING, NewestSource.WATCHED]


def test_a_late_deletion_of_a_predecessor_does_not_affect_our_object():
    sight = ours(ObjectVersion("before", "0"))
    sight.observe_deleted("before")

    assert sight.newest is NewestSource.OWN


def test_an_object_deleted_before_our_answer_arrived():
    sight = VersionTracker()
    sight.begin_request()
    sight.observe(MINE)
    sight.observe_deleted("u")
    sight.answer(MINE, 10.0)

    assert sight.newest is NewestSource.NOTHING
