"""The environment of these tests: a private lab with our CRDs and ledgers."""

from dataclasses import dataclass

from croupier.api import kinds
from croupier.api.meta import ObjectMeta
from croupier.api.mps import NodeReservation, ledger_codec
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.kube.client.api_client import Client
from tests.proof.invariants import InvariantChecker


@dataclass(frozen=True)
class ProofSize:
    """The size of a test."""

    name: str
    schedulers: int
    requests: int
    nodes: int
    cards: int
    hot_requests: int
    """Claims of each of the 64 writers on one node."""
    pods: int
    at_once: int = 8
    """Concurrent claims of each scheduler."""

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.schedulers} schedulers, {self.requests} requests on {self.nodes} nodes "
            f"with {self.cards} cards"
        )


CI = ProofSize("CI size", schedulers=8, requests=400, nodes=4, cards=4, hot_requests=2, pods=80)
FULL = ProofSize(
    "full size", schedulers=8, requests=10_000, nodes=8, cards=16, hot_requests=20, pods=1_000, at_once=32
)


def empty_ledger(node: str, cards: int) -> Ledger:
    return Ledger(node, tuple(LedgerCard(f"{node}-gpu-{index}", index) for index in range(cards)))


async def create_ledgers(api: Client, nodes: list[str], cards: int) -> dict[str, NodeReservation]:
    """Create the ledger of each node like the capacity controller."""
    made = {}
    for node in nodes:
        body = NodeReservation(
            metadata=ObjectMeta(name=node), spec=ledger_codec.encode(empty_ledger(node, cards))
        )
        made[node] = await api.create(kinds.NODE_RESERVATIONS, body)
    return made


def holders(judge: InvariantChecker) -> dict[str, str]:
    """The node of each current holder."""
    return {holder: node for node, sheet in judge.sheets.items() for holder in sheet.grants}
