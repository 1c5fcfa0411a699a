"""How long the cards of a Reservation are held."""

from datetime import timedelta

import pytest

from croupier.core.ledger.ledger import HoldTerms
from croupier.core.ledger.reservation_hold import ReservationHold
from tests.core.ledger_builders import NODE, NOON

MINUTE = timedelta(seconds=60)
ENDS = {
    "without a TTL: until it is released": ({"since": NOON - MINUTE}, None),
    "from the creation time on": ({"since": NOON - MINUTE / 2, "ttl": 60}, NOON + MINUTE / 2),
    "from now on, if the creation time is unknown": ({"ttl": 60}, NOON + MINUTE),
    "from now on, if the creation time is in the future": (
        {"since": NOON + MINUTE, "ttl": 60},
        NOON + MINUTE,
    ),
}


@pytest.mark.parametrize(("known", "until"), ENDS.values(), ids=ENDS)
def test_the_end_of_a_hold(known, until):
    hold = ReservationHold("mine", "ns/pod", NODE, **known)

    assert hold.terms(NOON) == HoldTerms(bound=False, until=until, reservation="mine")
