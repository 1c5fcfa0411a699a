"""Our own processes beside the stock scheduler, as a cluster runs them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import yaml

from croupier.api.kinds import NODE_RESERVATIONS, NODES
from croupier.api.mps import NodeReservation
from croupier.book.manager import Book
from croupier.kube.client import Client
from croupier.lab import controlplane, dealer
from croupier.lab.controlplane import SCHEDULER
from croupier.lab.dealer import EXTENDER, MANAGER
from croupier.lab.lab import Lab
from croupier.lab.progress import Silent

PROCESSES: Mapping[Book, Sequence[str]] = {"InMemory": (EXTENDER,), "CRD": (EXTENDER, MANAGER)}
POLL = 0.3
PATIENCE = 180.0


@asynccontextmanager
async def working(
    lab: Lab, api: Client, *, book: Book | None, strategy: str
) -> AsyncIterator[dict[str, int]]:
    """Ready to place when the block begins; the names and pids of those who work beside the scheduler."""
    if book is None:
        await _alone(lab)
        yield {}
        return
    await dealer.join(lab, book, Silent(), strategy=strategy)
    try:
        if book == "CRD":
            await _until_opened(api)
        yield {name: lab.process(name).pid for name in PROCESSES[book]}
        if book == "CRD":
            await _until_free(api)
    finally:
        await dealer.leave(lab)


async def _alone(lab: Lab) -> None:
    """A scheduler that has never heard of us."""
    settings = controlplane.scheduler_configuration(lab.site)
    (lab.folder / f"{SCHEDULER}.yaml").write_text(yaml.safe_dump(settings))
    await lab.start(SCHEDULER)
    await lab.ready([SCHEDULER])


async def _until_opened(api: Client) -> None:
    """Every node has its ledger, and its first status; with the book in memory, a ready extender has all."""
    nodes = len((await api.list(NODES)).items)
    await _until(api, lambda ledgers: sum(one.status.cards is not None for one in ledgers) == nodes)


async def _until_free(api: Client) -> None:
    """Nobody holds anything any more."""
    await _until(api, lambda ledgers: not any(card.holders for one in ledgers for card in one.spec.cards))


async def _until(api: Client, good: Callable[[Sequence[NodeReservation]], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not good((await api.list(NODE_RESERVATIONS)).items):  # noqa: ASYNC110 (others change it)
            await asyncio.sleep(POLL)
