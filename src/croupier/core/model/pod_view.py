"""The fields of a pod that card allocation needs."""

from dataclasses import dataclass
from datetime import datetime

from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardRequest


@dataclass(frozen=True, slots=True)
class PodView:
    key: str
    """`namespace/name`."""
    uid: str
    node: str = ""
    """The node it is bound to; empty while it is unscheduled."""
    finished: bool = False
    """Its phase is Succeeded or Failed."""
    wants: CardRequest = ()
    """Its card request; empty if it requests no cards or the request cannot be read."""
    trouble: str = ""
    """Why its request cannot be read."""
    grant: Grant = ()
    """The allocation in its Binding."""
    indexes: tuple[int, ...] = ()
    """Index of each allocated card on the node; empty if unknown."""
    priority: int = 0
    marked: bool = False
    """It requests `gpu.mps.io/ledger`, so only the extender may place it."""
    created: datetime | None = None

    @property
    def holder(self) -> str:
        """Its holder name in the ledger."""
        return f"{self.key}/{self.uid}"
