"""What pods were promised of a pool before they hold anything of it, and until when. Pure.

A booking is the admitted pod itself: nothing is written when it is admitted, so nothing can leak. It counts
against the pool while it is young and waits for a node. Then its units are free for others; the pod stays and
may still be bound when there is room. Cards are held in the ledger alone, so that a booking that is counted
wrongly makes somebody wait at worst.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

TTL: Final = timedelta(seconds=120)
NEWS: Final = timedelta(minutes=30)
"""How long after its end an expired booking is still told of. Shorter than an Event lives, so that whoever
comes to office finds what was told before, and tells nothing twice."""


@dataclass(frozen=True, slots=True)
class Booking:
    """A pod that was admitted and waits for a node."""

    pod: str
    """`namespace/name`."""
    uid: str
    pool: str
    units: int
    """What it asks for of the pool, in the pool's own unit."""
    since: datetime


@dataclass(frozen=True, slots=True)
class Look:
    """The bookings of one pool at one moment."""

    booked: int = 0
    expired: tuple[Booking, ...] = ()
    """Those worth telling of: they ended a short while ago."""
    again: timedelta | None = None
    """After how long the next one ends."""


def booked(bookings: Iterable[Booking], now: datetime, ttl: timedelta = TTL) -> int:
    """Units that are promised and not held."""
    ended = now - ttl
    return sum(one.units for one in bookings if one.since > ended)


def look(bookings: Iterable[Booking], now: datetime, ttl: timedelta = TTL) -> Look:
    """Of one pool; a pod that is bound, finished or being deleted is no booking any more."""
    live: list[Booking] = []
    over: list[Booking] = []
    ended = now - ttl
    for one in bookings:
        if one.since > ended:
            live.append(one)
        elif one.since > ended - NEWS:
            over.append(one)
    again = min(one.since for one in live) - ended if live else None
    over.sort(key=lambda one: (one.since, one.pod))
    return Look(sum(one.units for one in live), tuple(over), again)


def expired(one: Booking, ttl: timedelta = TTL) -> str:
    """The sentence of the Event, the same on the pod and on the pool."""
    return (
        f"the booking of {one.units} of pool {one.pool} by pod {one.pod} expired after "
        f"{ttl.total_seconds():g} s without a node: others may have them now, and the pod is still "
        "bound when there is room"
    )
