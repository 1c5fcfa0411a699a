"""A report says only what lasts: since when no holder uses a card, and which users are no holders."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import card_use
from croupier.core.cards.card_use import MAX_STRANGERS, SETTLE, CardUse

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
A, B = "ns/a/1", "ns/b/2"
Holders = Mapping[str, datetime | None]
OLD: Holders = {A: NOON - timedelta(days=1)}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def after(*looks: tuple[float, Holders, set[str] | None], start: CardUse | None = None) -> CardUse:
    """The state after looks at these seconds, with these holders and users."""
    use = start or CardUse()
    for seconds, holders, users in looks:
        use = card_use.observe(use, holders, users, at(seconds))
    return use


RESUMED = CardUse(used=at(-3600))

IDLE = {
    "used": (after((0, OLD, {A}), (100, OLD, {A})), 100, None),
    "not for long": (after((0, OLD, {A}), (59, OLD, set())), 59, None),
    "since its last use": (after((0, OLD, {A}), (30, OLD, {A}), (90, OLD, set())), 90, at(30)),
    "never used": (after((0, OLD, set()), (60, OLD, set())), 60, at(0)),
    "used again": (after((0, OLD, set()), (90, OLD, set()), (91, OLD, {A})), 91, None),
    "used by another": (after((0, OLD, {A}), (90, OLD, {B})), 90, at(0)),
    "no holders": (after((0, {}, set()), (90, {}, set())), 90, None),
    "one of two uses it": (after((0, {**OLD, B: NOON}, {A}), (90, {**OLD, B: NOON}, {B})), 90, None),
    "another holder starts from zero": (
        after((0, OLD, {A}), (50, {B: NOON}, set()), (90, {B: NOON}, set())),
        90,
        None,
    ),
    "unknown": (after((0, OLD, None), (90, OLD, None)), 90, None),
    "unknown counts as use": (after((0, OLD, {A}), (50, OLD, None), (100, OLD, set())), 100, None),
    "idle stays idle while unknown": (after((0, OLD, {A}), (90, OLD, set()), (95, OLD, None)), 95, at(0)),
    "a restart continues": (after((0, OLD, set()), start=RESUMED), 0, at(-3600)),
    "a restart with a younger holder": (after((0, {B: at(-10)}, set()), start=RESUMED), 0, None),
    "a restart with a use": (after((0, OLD, {A}), start=RESUMED), 0, None),
    "a restart without an answer": (after((0, OLD, None), start=RESUMED), 0, at(-3600)),
}


@pytest.mark.parametrize(("use", "seconds", "expected"), IDLE.values(), ids=IDLE)
def test_idle(use, seconds, expected):
    assert use.idle_since(at(seconds)) == expected


STRANGERS = {
    "a holder is none": (after((0, OLD, {A}), (90, OLD, {A})), ()),
    "another pod": (after((0, OLD, {A, B}), (60, OLD, {B})), (B,)),
    "not for long": (after((0, OLD, {A}), (31, OLD, {B})), ()),
    "gone and back": (after((0, OLD, {B}), (30, OLD, set()), (31, OLD, {B})), ()),
    "a process on a free card": (after((0, {}, {"process x"}), (60, {}, {"process x"})), ("process x",)),
    "unknown": (after((0, {}, {B}), (60, {}, None)), ()),
    "it became a holder": (after((0, {}, {B}), (60, {B: NOON}, {B})), ()),
}


@pytest.mark.parametrize(("use", "expected"), STRANGERS.values(), ids=STRANGERS)
def test_strangers(use, expected):
    assert use.reported_strangers(at(90)) == expected


def test_the_report_is_bounded():
    names = {f"process {number:02}" for number in range(20)}
    use = after((0, {}, names), (60, {}, names))

    assert use.reported_strangers(at(60)) == tuple(sorted(names))[:MAX_STRANGERS]


NAMES = st.sets(st.sampled_from([A, B, "process x"]))
LOOKS = st.lists(
    st.tuples(st.integers(1, 100), st.sets(st.sampled_from([A, B])), st.none() | NAMES),
    min_size=1,
    max_size=30,
)


@given(LOOKS)
def test_what_is_reported_has_lasted(looks):
    use, now, used = CardUse(), 0, 0
    seen: dict[str, int] = {}
    for pause, holders, users in looks:
        now += pause
        before = use.holders
        use = card_use.observe(use, dict.fromkeys(holders, NOON), users, at(now))
        if users is not None:
            seen = {name: seen.get(name, now) for name in users - holders}
            if users & holders or before != frozenset(holders):
                used = now
        else:
            seen = {}
        idle = use.idle_since(at(now))
        assert idle is None or (holders and at(used) <= idle <= at(now) - SETTLE)
        assert all(now - seen[name] >= SETTLE.total_seconds() for name in use.reported_strangers(at(now)))


@given(LOOKS)
def test_short_processes_never_change_the_report(looks):
    """A process at every second look keeps the card in use."""
    use, now = CardUse(), 0
    for number, (pause, _, _) in enumerate(looks):
        now += min(pause, 29)
        use = card_use.observe(use, OLD, {A} if number % 2 == 0 else set(), at(now))
        assert use.idle_since(at(now)) is None
