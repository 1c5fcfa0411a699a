"""Builders for ledgers, pod requests and rankings, and a manual clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from croupier.book.memory import InMemoryCapacityManager
from croupier.core.ledgers.ledger import Card, Ledger
from croupier.core.placing.placement import Strategy
from croupier.core.pods.want import Shares, Want, Wants
from croupier.extender.asked import Asked
from croupier.extender.index import Index


@dataclass
class Hands:
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


def card(node: str, index: int) -> Card:
    return Card(f"{node}-card-{index}", index)


def ledger(node: str, cards: int = 2) -> Ledger:
    return Ledger(node, tuple(card(node, index) for index in range(cards)))


def asked(name: str, *wants: Want, uid: str = "", trouble: str = "") -> Asked:
    """A pod of namespace `team` that requests half a card by default."""
    return Asked(f"team/{name}", uid or f"uid-{name}", "7", wants or (Shares(1, 50),), trouble)


async def book(*ledgers: Ledger) -> InMemoryCapacityManager:
    manager = InMemoryCapacityManager()
    for ledger_ in ledgers:
        await manager.open(ledger_.node, ledger_)
    return manager


def index(manager: InMemoryCapacityManager, clock: Hands, strategy: Strategy = "BinPack") -> Index:
    return Index(manager, clock, strategy=lambda _wants: strategy)


def names(count: int) -> Sequence[str]:
    return [f"node-{number}" for number in range(count)]


HALF: Wants = (Shares(1, 50),)
WHOLE: Wants = (Shares(1),)
