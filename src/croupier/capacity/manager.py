"""The interface of the capacity manager: claim and release cards, and read the ledgers.

It has two implementations. `crd.CRDCapacityManager` stores ledgers in the API server, so that any
number of schedulers can share them. `in_memory.InMemoryCapacityManager` keeps them in the memory of the
one process that may place pods, and the durable record is the allocation of each pod.
"""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol, TypeAlias

from croupier.core.claims.claim import CardClaim
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardShares
from croupier.core.model.refusal import Refusal
from croupier.core.placement.placement import Strategy

CapacityManagerKind: TypeAlias = Literal["InMemory", "CRD"]
"""Where the ledgers are stored; the setting `capacityManager`."""

TTL: Final = timedelta(seconds=120)
"""Default time that a hold waits for its pod to be bound."""

STRATEGY: Final[Strategy] = "Spread"

LedgerFunction = Callable[[Ledger], Ledger]
"""Any pure function on a ledger; it may run again on a newer ledger after a conflict."""


class UnknownNode(LookupError):
    """The node has no ledger: it was never opened, or is closed."""

    def __init__(self, node: str) -> None:
        super().__init__(unknown_node(node).reason)


def unknown_node(node: str) -> Refusal:
    return Refusal(f"the ledger has no node {node}")


def hold_claim(pod: str, *, cards: int, percent: int, until: datetime) -> CardClaim:
    """The claim that `reserve` makes."""
    return CardClaim(pod, (CardShares(cards, percent),), HoldTerms(until=until))


class CapacityManager(Protocol):
    """Methods raise a `KubeError` if the outcome is unknown; callers must then assume nothing."""

    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refusal:
        """Hold `percent` of each of `cards` cards for `pod` (its holder name) until the TTL expires."""
        ...

    async def claim(self, node: str, claim: CardClaim, strategy: Strategy | None = None) -> Grant | Refusal:
        """Grant the whole claim or refuse it; durable on return. A repeated claim gets the same grant."""
        ...

    async def release(self, pod: str, node: str) -> None:
        """Release everything of the holder `pod`; idempotent."""
        ...

    async def amend(self, node: str, change: LedgerFunction, *, lazy: bool = False) -> Ledger:
        """Commit `change` and return the ledger. A lazy change may wait to share the write of another one."""
        ...

    async def open(self, node: str, ledger: Ledger) -> Ledger:
        """Create the ledger of a node, or return the existing one unchanged."""
        ...

    async def close(self, node: str) -> bool:
        """Remove the ledger of a node without holders; False if it has holders."""
        ...

    def ledger(self, node: str) -> Ledger | None:
        """The newest known ledger, never older than our own writes, including our uncommitted claims."""
        ...

    def nodes(self) -> Collection[str]: ...

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call `changed` with the node when `ledger(node)` changes; the returned function unsubscribes."""
        ...
