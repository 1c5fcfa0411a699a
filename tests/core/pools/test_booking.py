"""A booking counts until its TTL, then expires, and is reported for a limited time."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.pools import booking
from croupier.core.pools.booking import REPORT_WINDOW, TTL, Booking

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def booked(age: timedelta, units: int = 1, name: str = "a") -> Booking:
    return Booking(f"team/{name}", f"uid-{name}", "team-a", units, NOON - age)


AGES = {
    "just admitted": (timedelta(), 1, False, TTL),
    "created by a clock that is ahead": (-SECOND, 1, False, TTL + SECOND),
    "with a second left": (TTL - SECOND, 1, False, SECOND),
    "just expired": (TTL, 0, True, None),
    "expired for a while": (TTL + REPORT_WINDOW - SECOND, 0, True, None),
    "expired long ago": (TTL + REPORT_WINDOW, 0, False, None),
}


@pytest.mark.parametrize(("age", "units", "told", "again"), AGES.values(), ids=AGES)
def test_a_booking_by_age(age, units, told, again):
    one = booked(age)
    seen = booking.summarize([one], NOON)

    assert (seen.booked, seen.expired, seen.again) == (units, (one,) if told else (), again)


def test_the_expiry_message():
    assert booking.expiry_message(booked(TTL, 2)) == (
        "the booking of 2 of pool team-a by pod team/a expired after 120 s without a node: "
        "other pods may use the units, and this pod is still scheduled when units are free"
    )


BOOKINGS = st.lists(
    st.builds(
        booked, st.timedeltas(-TTL, TTL + 2 * REPORT_WINDOW), st.integers(1, 100), st.text("ab", max_size=3)
    )
)


@given(BOOKINGS)
def test_each_booking_is_either_counted_reported_or_dropped(bookings):
    seen = booking.summarize(bookings, NOON)

    live = [one for one in bookings if one.since + TTL > NOON]
    assert seen.booked == sum(one.units for one in live) == booking.booked(bookings, NOON)
    assert not set(seen.expired) & set(live)
    assert (seen.again is None) == (not live)


@given(BOOKINGS)
def test_requeueing_as_requested_misses_no_expiry(bookings):
    """With a reconcile at each `again`, the number is right at every moment between."""
    seen = booking.summarize(bookings, NOON)
    if seen.again is None:
        return

    assert seen.again > timedelta()
    just_before = NOON + seen.again - timedelta(microseconds=1)
    assert booking.booked(bookings, just_before) == seen.booked
    assert booking.booked(bookings, NOON + seen.again) < seen.booked
