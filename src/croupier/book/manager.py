"""What everyone may ask of the book: take, give back, see what is free and who holds.

Two books answer the same questions. `crd.CRDCapacityManager` keeps the record in the API server, so
that any number of schedulers can share it; `memory.InMemoryCapacityManager` keeps it in the one
process that may place pods, and the record is what travels with each pod. Nobody else needs to know
which one it is.
"""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol, TypeAlias

from croupier.core.ledgers.claim import Claim
from croupier.core.ledgers.ledger import Grant, Ledger, Refused, Terms
from croupier.core.placing.placement import Strategy
from croupier.core.pods.want import Shares

Book: TypeAlias = Literal["InMemory", "CRD"]
"""Where the record is kept; the setting `capacityManager`."""

TTL: Final = timedelta(seconds=120)
"""How long a hold waits for its pod to be bound, unless a setting says otherwise."""

STRATEGY: Final[Strategy] = "Spread"

Change = Callable[[Ledger], Ledger]
"""Any pure change of `core.ledger`; it may run again on a newer ledger after a conflict."""


class UnknownNode(LookupError):
    """A change of a ledger that was never opened, or is closed."""

    def __init__(self, node: str) -> None:
        super().__init__(missing(node).reason)


def missing(node: str) -> Refused:
    return Refused(f"the ledger has no node {node}")


def hold(pod: str, *, cards: int, percent: int, until: datetime) -> Claim:
    """The claim that `reserve` makes."""
    return Claim(pod, (Shares(cards, percent),), Terms(until=until))


class CapacityManager(Protocol):
    """Raises a `KubeError` where the outcome could not be established; then nothing is assumed."""

    async def reserve(self, pod: str, node: str, cards: int, percent: int) -> Grant | Refused:
        """Hold so many percent of so many cards for `pod` (its holder key) until the TTL is over."""
        ...

    async def claim(self, node: str, claim: Claim, strategy: Strategy | None = None) -> Grant | Refused:
        """All that is claimed or nothing; durable when it returns. A repeated claim gets the same again."""
        ...

    async def release(self, pod: str, node: str) -> None:
        """Whatever the holder key has is free again; repeating is harmless."""
        ...

    async def amend(self, node: str, change: Change, *, lazy: bool = False) -> Ledger:
        """The ledger after `change`, committed. A lazy one may wait a little to share another's write."""
        ...

    async def open(self, node: str, ledger: Ledger) -> Ledger:
        """The first ledger of a node; if there is one already, that one, untouched."""
        ...

    async def close(self, node: str) -> bool:
        """Forget a node nobody holds anything of; False if somebody does."""
        ...

    def ledger(self, node: str) -> Ledger | None:
        """The newest known, never older than our own writes, with our claims on their way counted in."""
        ...

    def nodes(self) -> Collection[str]: ...

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Have `changed` told the node whenever `ledger(node)` changed; the result ends that."""
        ...
