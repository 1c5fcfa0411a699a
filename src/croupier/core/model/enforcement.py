"""What keeps a container within its share of a card: hardware, a daemon, a library, or nothing."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Enforcement: TypeAlias = Literal["MPS", "HAMiCore", "None"]
"""The choice of a pool."""
Enforcer: TypeAlias = Literal["MIG", "MPSDaemon", "MPSClient", "HAMiCore", "None"]
"""What enforces shares of a card. MPSDaemon has static partitions; MPSClient reads the client's variables."""


@dataclass(frozen=True, slots=True)
class CardEnforcement:
    """The enforcement of one card. `message` is a sentence that users read."""

    by: Enforcer
    ready: bool = True
    """Whether shares of the card can be allocated now."""
    message: str = ""
    failed: bool = False
    """Shares are withheld because something is wrong, and not because a step takes its time."""
    owned: bool = False
    """An MPS daemon owns the card or is about to: it can be used through shares only."""

    @property
    def by_mps(self) -> bool:
        return self.by in ("MPSDaemon", "MPSClient")


MIG: CardEnforcement = CardEnforcement("MIG", message="the hardware separates MIG devices")
SIMULATED: CardEnforcement = CardEnforcement(
    "None", message="the card is simulated, so nothing enforces its shares"
)
TIME_SLICES: CardEnforcement = CardEnforcement(
    "None", message="time slices limit neither the memory nor the compute of a container"
)
NOT_ENFORCED: CardEnforcement = CardEnforcement(
    "None", message="the pool has enforcement None, so nothing enforces its shares"
)
