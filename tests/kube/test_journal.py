"""Many words, few Events: repeats are counted, floods are dammed, memory is bounded."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.kube import journal
from croupier.kube.bucket import Rate
from croupier.kube.journal import Entry, Happening, Journal, Limits, Reference

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
LIMITS = Limits(per_object=Rate(per_second=0.1, burst=3), series_every=10, series_quiet=360, remembered=8)


def happening(note: str = "no card has 50 % left", name: str = "train") -> Happening:
    return Happening(Reference("v1", "Pod", "shop", name, f"uid-{name}"), "NoRoom", note, "Reserve")


class Book:
    """A journal and an API server that takes whatever is due."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.journal = Journal(limits)
        self.writes: list[tuple[str, int]] = []

    def say(self, what: Happening, now: float) -> str | None:
        return self.journal.note(what, now, NOON + timedelta(seconds=now))

    def write(self, now: float) -> None:
        for entry in self.journal.due(now):
            self.writes.append(("update" if entry.told else "create", entry.count))
            self.journal.written(replace(entry, name=entry.name or "e"), now)


def test_the_first_time_is_an_event():
    book = Book()
    assert book.say(happening(), 0) is None
    book.write(0)

    assert book.writes == [("create", 1)]
    assert book.journal.waiting == 0


def test_the_same_again_raises_the_count_now_and_then():
    book = Book()
    for second in range(25):
        book.say(happening(), second)
        book.write(second)

    assert book.writes == [("create", 1), ("update", 11), ("update", 21)]
    assert book.journal.next_due() == 30


def test_repeats_before_the_first_write_are_in_it():
    book = Book()
    for _ in range(5):
        book.say(happening(), 0)
    book.write(0)

    assert book.writes == [("create", 5)]


def test_what_happens_while_it_is_written_is_not_lost():
    book = Book()
    book.say(happening(), 0)
    (entry,) = book.journal.due(0)
    book.say(happening(), 0)
    book.journal.written(replace(entry, name="e"), 0)

    assert book.journal.waiting == 1
    book.write(10)
    assert book.writes == [("update", 2)]


def test_after_a_long_silence_it_is_a_new_event():
    book = Book()
    book.say(happening(), 0)
    book.write(0)
    book.say(happening(), 400)
    book.write(400)

    assert book.writes == [("create", 1), ("create", 1)]


DIFFERENT = {
    "other words": happening(note="the node is gone"),
    "another object": happening(name="infer"),
    "another type": happening()._replace(type="Warning"),
}


@pytest.mark.parametrize("other", DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_is_an_event_of_its_own(other):
    book = Book()
    book.say(happening(), 0)
    book.say(other, 0)
    book.write(0)

    assert book.writes == [("create", 1), ("create", 1)]


def test_one_object_cannot_flood():
    book = Book()
    refused = [book.say(happening(note=f"try {n}"), 0) for n in range(6)]
    assert refused == [None, None, None, "spam", "spam", "spam"]

    assert book.say(happening(name="innocent"), 0) is None
    assert book.say(happening(note="later"), 10) is None


def test_a_full_journal_says_so():
    book = Book()
    for n in range(8):
        book.say(happening(name=f"pod-{n}"), 0)

    assert book.say(happening(name="one too many"), 0) == "full"


def test_an_event_the_api_server_forgot_is_written_anew():
    book = Book()
    book.say(happening(), 0)
    book.write(0)
    book.say(happening(), 5)
    (entry,) = book.journal.due(10)
    book.journal.vanished(entry)
    book.write(10)

    assert book.writes == [("create", 1), ("create", 2)]


def test_a_failed_write_waits_and_keeps_its_name():
    book = Book()
    book.say(happening(), 0)
    (entry,) = book.journal.due(0)
    book.journal.failed(replace(entry, name="e.1"), retry_at=2.5)

    assert book.journal.due(2) == []
    (again,) = book.journal.due(2.5)
    assert (again.name, again.attempts) == ("e.1", 1)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.booleans()), max_size=200))
def test_memory_stays_bounded_whatever_is_said(words):
    book = Book()
    for now, (name, note, write) in enumerate(words):
        book.say(happening(name=f"pod-{name}", note=f"note {note}"), now)
        if write:
            book.write(now)
        assert book.journal.remembered <= LIMITS.remembered
        assert book.journal.waiting <= LIMITS.remembered
    assert all(isinstance(entry, Entry) for entry in book.journal.unwritten())


@given(st.text(max_size=3000))
def test_a_note_fits_and_says_that_it_was_cut(note):
    kept = journal.cut(note)

    assert len(kept.encode()) <= journal.NOTE_BYTES
    assert kept == note or (kept.endswith("…") and note.startswith(kept[:-1].rstrip()))


def test_a_long_note_ends_at_a_word():
    kept = journal.cut("one two three four", limit=14)

    assert kept == "one two…"
