"""Where proofs are played: a lab of their own with our kinds and opened ledgers."""

import asyncio
from dataclasses import dataclass

from croupier.api import crds, kinds
from croupier.api.meta import ObjectMeta
from croupier.api.mps import NodeReservation, translate
from croupier.core.ledgers.ledger import Card, Ledger
from croupier.kube.client import Client
from croupier.lab import borrowed
from croupier.lab.lab import Lab
from croupier.lab.pytest_plugin import PrivateLab
from tests.proof.judge import Judge


@dataclass(frozen=True)
class Size:
    """How much of a proof is run."""

    name: str
    schedulers: int
    requests: int
    nodes: int
    cards: int
    hot_requests: int
    """Of each of the 64 writers on one node."""
    pods: int
    at_once: int = 8
    """Requests each scheduler has under way."""

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.schedulers} schedulers, {self.requests} requests on {self.nodes} nodes "
            f"with {self.cards} cards"
        )


CI = Size("CI size", schedulers=8, requests=400, nodes=4, cards=4, hot_requests=2, pods=80)
FULL = Size(
    "full size", schedulers=8, requests=10_000, nodes=8, cards=16, hot_requests=20, pods=1_000, at_once=32
)


async def raised(private_lab: PrivateLab, **how: object) -> Lab:
    lab = await private_lab(**how)  # type: ignore[arg-type]  # passed on as it was given
    await asyncio.to_thread(borrowed.install, lab.cluster, crds.definitions())
    return lab


def free(node: str, cards: int) -> Ledger:
    return Ledger(node, tuple(Card(f"{node}-gpu-{index}", index) for index in range(cards)))


async def opened(api: Client, nodes: list[str], cards: int) -> dict[str, NodeReservation]:
    """The first ledger of each node, as the capacity controller would make it."""
    made = {}
    for node in nodes:
        body = NodeReservation(metadata=ObjectMeta(name=node), spec=translate.write(free(node, cards)))
        made[node] = await api.create(kinds.NODE_RESERVATIONS, body)
    return made


def holders(judge: Judge) -> dict[str, str]:
    """Who holds something now, and where."""
    return {holder: node for node, sheet in judge.sheets.items() for holder in sheet.grants}
