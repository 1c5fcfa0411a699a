"""What deciding about cards needs to know of a pod."""

from dataclasses import dataclass
from datetime import datetime

from croupier.core.ledgers.ledger import Grant
from croupier.core.pods.want import Wants


@dataclass(frozen=True, slots=True)
class PodView:
    key: str
    """`namespace/name`."""
    uid: str
    node: str = ""
    """Where it is bound; empty while it waits."""
    finished: bool = False
    """Succeeded or Failed: it will use nothing any more."""
    wants: Wants = ()
    """What it asks of the cards of a node; nothing if it asks for none, or in a way nobody can read."""
    trouble: str = ""
    """Why its request cannot be read."""
    grant: Grant = ()
    """The allocation that came with its binding."""
    indexes: tuple[int, ...] = ()
    """What number each card of the allocation had on the node; empty when nobody knows."""
    priority: int = 0
    marked: bool = False
    """It carries `gpu.mps.io/ledger`: only we may place it."""
    created: datetime | None = None

    @property
    def holder(self) -> str:
        """How the ledger names it."""
        return f"{self.key}/{self.uid}"
