"""A pod runs on one node, so only one of the Reservations for a pod may hold cards.

Each node is decided by itself. Two Reservations that are decided at the same time may therefore both hold
cards for a moment; then both nodes come to the same decision which of them keeps its cards.
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RivalHold:
    """The cards that another Reservation holds for the same pod on another node."""

    reservation: str
    """`namespace/name`."""
    node: str
    created: datetime
    has_pod: bool = False
    """A pod has taken over the cards."""

    def precedes(self, key: str, created: datetime) -> bool:
        """Whether this hold stays if the Reservation `key` holds cards for the same pod and waits for it."""
        return self.has_pod or (self.created, self.reservation) < (created, key)

    def describe(self, pod: str) -> str:
        name = self.reservation.partition("/")[2]
        return (
            f"pod {pod} already has cards of {self.node} through Reservation {name}:"
            " a pod can hold cards of one node only"
        )
