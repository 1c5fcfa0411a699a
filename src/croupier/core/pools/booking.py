"""Bookings: units of a pool for admitted pods that have no node yet.

A booking is the admitted pod itself: admission stores nothing, so nothing can leak. It counts against the
pool until its TTL expires. Then the units are free for other pods; the pod stays pending and may still be
bound. Only the ledger holds cards, so a miscounted booking can at worst make a pod wait.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

TTL: Final = timedelta(seconds=120)
REPORT_WINDOW: Final = timedelta(minutes=30)
"""How long after its expiry a booking is still reported. It is shorter than the TTL of Events, so that a new
leader finds the earlier Event and does not repeat it."""


@dataclass(frozen=True, slots=True)
class Booking:
    """An admitted pod without a node."""

    pod: str
    """`namespace/name`."""
    uid: str
    pool: str
    units: int
    """The request of the pod, in the unit of the pool."""
    since: datetime


@dataclass(frozen=True, slots=True)
class BookingSummary:
    """The bookings of one pool at one point in time."""

    booked: int = 0
    expired: tuple[Booking, ...] = ()
    """Bookings that expired recently and are reported."""
    again: timedelta | None = None
    """The time until the next booking expires."""


def booked(bookings: Iterable[Booking], now: datetime, ttl: timedelta = TTL) -> int:
    """Units that are booked and not held."""
    ended = now - ttl
    return sum(booking.units for booking in bookings if booking.since > ended)


def summarize(bookings: Iterable[Booking], now: datetime, ttl: timedelta = TTL) -> BookingSummary:
    """Summarize the bookings of one pool. Pods that are bound, finished or terminating are no bookings."""
    live: list[Booking] = []
    over: list[Booking] = []
    ended = now - ttl
    for booking in bookings:
        if booking.since > ended:
            live.append(booking)
        elif booking.since > ended - REPORT_WINDOW:
            over.append(booking)
    again = min(booking.since for booking in live) - ended if live else None
    over.sort(key=lambda booking: (booking.since, booking.pod))
    return BookingSummary(sum(booking.units for booking in live), tuple(over), again)


def expiry_message(booking: Booking, ttl: timedelta = TTL) -> str:
    """The note of the Event, the same on the pod and on the pool."""
    return (
        f"the booking of {booking.units} of pool {booking.pool} by pod {booking.pod} expired after "
        f"{ttl.total_seconds():g} s without a node: other pods may use the units, and this pod is still "
        "scheduled when units are free"
    )
