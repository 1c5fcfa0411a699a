"""The kinds of `mps.nvidia.com/v1`: Reservation and NodeReservation (the ledger of a node)."""

from croupier.api.mps.ledger import NodeReservation
from croupier.api.mps.reservation import Reservation

__all__ = ["NodeReservation", "Reservation"]
