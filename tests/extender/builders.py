"""Builders for ledgers, pod requests and rankings, and a manual clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.core.model.card_request import CardRequest, CardRequestItem, CardShares
from croupier.core.placement.placement import Strategy
from croupier.extender.node_ranking import NodeRanking
from croupier.extender.pod_request import PodRequest


@dataclass
class ManualClock:
    """A clock that only moves when a test moves it."""

    moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seconds: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.pass_(seconds)

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds
        self.moment += timedelta(seconds=seconds)


def card(node: str, index: int) -> LedgerCard:
    return LedgerCard(f"{node}-card-{index}", index)


def ledger(node: str, cards: int = 2) -> Ledger:
    return Ledger(node, tuple(card(node, index) for index in range(cards)))


def pod_request(name: str, *wants: CardRequestItem, uid: str = "", trouble: str = "") -> PodRequest:
    """A pod of namespace `team` that requests half a card by default."""
    return PodRequest(f"team/{name}", uid or f"uid-{name}", "7", wants or (CardShares(1, 50),), trouble)


async def in_memory_manager(*ledgers: Ledger) -> InMemoryCapacityManager:
    manager = InMemoryCapacityManager()
    for ledger_ in ledgers:
        await manager.open(ledger_.node, ledger_)
    return manager


def node_ranking(
    manager: InMemoryCapacityManager, clock: ManualClock, strategy: Strategy = "BinPack"
) -> NodeRanking:
    return NodeRanking(manager, clock, strategy=lambda _wants: strategy)


def names(count: int) -> Sequence[str]:
    return [f"node-{number}" for number in range(count)]


HALF: CardRequest = (CardShares(1, 50),)
WHOLE: CardRequest = (CardShares(1),)
