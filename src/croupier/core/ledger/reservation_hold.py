"""The cards that a Reservation holds, as the ledger needs them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from croupier.core.ledger.ledger import HoldTerms
from croupier.core.model.card import Grant


@dataclass(frozen=True, slots=True)
class ReservationHold:
    """A Reservation with phase Reserved, and the cards in its status."""

    name: str
    """Name of the Reservation; its namespace is that of the pod."""
    pod: str
    """`namespace/name` of its pod; also the holder name in the ledger until the pod exists."""
    node: str
    grant: Grant = ()
    since: datetime | None = None
    """Creation time; the TTL starts here."""
    ttl: int | None = None
    """Seconds to wait for the pod; None: no end."""

    def terms(self, now: datetime) -> HoldTerms:
        """A creation time in the future (clock skew) does not extend the hold."""
        if self.ttl is None:
            return HoldTerms(reservation=self.name)
        since = now if self.since is None else min(self.since, now)
        return HoldTerms(until=since + timedelta(seconds=self.ttl), reservation=self.name)
