"""The kinds of `mps.nvidia.com/v1`: who asked for cards, and who holds them."""

from croupier.api.mps.ledger import NodeReservation
from croupier.api.mps.reservation import Reservation

__all__ = ["NodeReservation", "Reservation"]
