"""The phases of Reservations and PodAllocations, as their status has them."""

from typing import Literal, TypeAlias

ReservationPhase: TypeAlias = Literal["Pending", "Reserved", "Failed", "Released"]
AllocationPhase: TypeAlias = Literal["Pending", "Applied", "Failed"]
