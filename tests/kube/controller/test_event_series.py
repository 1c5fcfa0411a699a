"""Event series: repetitions are counted, floods are rate limited, memory is bounded."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.kube.controller import event_series
from croupier.kube.controller.event_series import (
    EventAggregator,
    EventContent,
    EventLimits,
    EventReference,
    PendingEvent,
)
from croupier.kube.controller.rate_limit import RateLimit

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
LIMITS = EventLimits(
    per_object=RateLimit(per_second=0.1, burst=3), series_every=10, series_quiet=360, remembered=8
)


def event(note: str = "no card has 50 % left", name: str = "train") -> EventContent:
    return EventContent(EventReference("v1", "Pod", "shop", name, f"uid-{name}"), "NoRoom", note, "Reserve")


class SeriesEnv:
    """An aggregator and an API server that accepts all due Events."""

    def __init__(self, limits: EventLimits = LIMITS) -> None:
        self.journal = EventAggregator(limits)
        self.writes: list[tuple[str, int]] = []

    def say(self, what: EventContent, now: float) -> str | None:
        return self.journal.note(what, now, NOON + timedelta(seconds=now))

    def write(self, now: float) -> None:
        for entry in self.journal.due(now):
            self.writes.append(("update" if entry.written_count else "create", entry.count))
            self.journal.written(replace(entry, name=entry.name or "e"), now)


def test_the_first_record_creates_an_event():
    env = SeriesEnv()
    assert env.say(event(), 0) is None
    env.write(0)

    assert env.writes == [("create", 1)]
    assert env.journal.waiting == 0


def test_repetitions_update_the_count_at_intervals():
    env = SeriesEnv()
    for second in range(25):
        env.say(event(), second)
        env.write(second)

    assert env.writes == [("create", 1), ("update", 11), ("update", 21)]
    assert env.journal.next_due() == 30


def test_repetitions_before_the_first_write_are_counted_in_it():
    env = SeriesEnv()
    for _ in range(5):
        env.say(event(), 0)
    env.write(0)

    assert env.writes == [("create", 5)]


def test_repetitions_during_a_write_are_not_lost():
    env = SeriesEnv()
    env.say(event(), 0)
    (entry,) = env.journal.due(0)
    env.say(event(), 0)
    env.journal.written(replace(entry, name="e"), 0)

    assert env.journal.waiting == 1
    env.write(10)
    assert env.writes == [("update", 2)]


def test_after_a_long_pause_a_repetition_is_a_new_event():
    env = SeriesEnv()
    env.say(event(), 0)
    env.write(0)
    env.say(event(), 400)
    env.write(400)

    assert env.writes == [("create", 1), ("create", 1)]


DIFFERENT = {
    "other words": event(note="the node is gone"),
    "another object": event(name="infer"),
    "another type": event()._replace(type="Warning"),
}


@pytest.mark.parametrize("other", DIFFERENT.values(), ids=DIFFERENT)
def test_different_content_is_a_separate_event(other):
    env = SeriesEnv()
    env.say(event(), 0)
    env.say(other, 0)
    env.write(0)

    assert env.writes == [("create", 1), ("create", 1)]


def test_events_of_one_object_are_rate_limited():
    env = SeriesEnv()
    refused = [env.say(event(note=f"try {n}"), 0) for n in range(6)]
    assert refused == [None, None, None, "spam", "spam", "spam"]

    assert env.say(event(name="innocent"), 0) is None
    assert env.say(event(note="later"), 10) is None


def test_a_full_aggregator_drops_events():
    env = SeriesEnv()
    for n in range(8):
        env.say(event(name=f"pod-{n}"), 0)

    assert env.say(event(name="one too many"), 0) == "full"


def test_an_event_that_expired_is_created_again():
    env = SeriesEnv()
    env.say(event(), 0)
    env.write(0)
    env.say(event(), 5)
    (entry,) = env.journal.due(10)
    env.journal.vanished(entry)
    env.write(10)

    assert env.writes == [("create", 1), ("create", 2)]


def test_a_failed_write_is_delayed_and_keeps_its_name():
    env = SeriesEnv()
    env.say(event(), 0)
    (entry,) = env.journal.due(0)
    env.journal.failed(replace(entry, name="e.1"), retry_at=2.5)

    assert env.journal.due(2) == []
    (again,) = env.journal.due(2.5)
    assert (again.name, again.attempts) == ("e.1", 1)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.booleans()), max_size=200))
def test_memory_is_bounded(words):
    env = SeriesEnv()
    for now, (name, note, write) in enumerate(words):
        env.say(event(name=f"pod-{name}", note=f"note {note}"), now)
        if write:
            env.write(now)
        assert env.journal.remembered <= LIMITS.remembered
        assert env.journal.waiting <= LIMITS.remembered
    assert all(isinstance(entry, PendingEvent) for entry in env.journal.unwritten())


@given(st.text(max_size=3000))
def test_a_long_note_is_truncated_with_an_ellipsis(note):
    kept = event_series.truncate(note)

    assert len(kept.encode()) <= event_series.NOTE_BYTES
    assert kept == note or (kept.endswith("…") and note.startswith(kept[:-1].rstrip()))


def test_a_truncated_note_ends_at_a_word():
    kept = event_series.truncate("one two three four", limit=14)

    assert kept == "one two…"
