"""What a Reservation holds, as far as the ledger is concerned."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from croupier.core.ledgers.ledger import Grant, Terms


@dataclass(frozen=True, slots=True)
class Pledge:
    """A Reservation whose status says Reserved, and of which cards."""

    name: str
    """Of the Reservation, in the namespace of its pod."""
    pod: str
    """`namespace/name` of the pod it is for; the ledger names the holder so until the pod is there."""
    node: str
    grant: Grant = ()
    since: datetime | None = None
    """When it was created: its time to live counts from there."""
    ttl: int | None = None
    """Seconds it waits for its pod; without, until it is deleted."""

    def terms(self, now: datetime) -> Terms:
        """A clock that was ahead when it was created does not make it wait longer."""
        if self.ttl is None:
            return Terms(reservation=self.name)
        since = now if self.since is None else min(self.since, now)
        return Terms(until=since + timedelta(seconds=self.ttl), reservation=self.name)
