"""The processes of Croupier next to kube-scheduler."""

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
    """Run kube-scheduler with Croupier, or alone without `book`; yields the names and pids of Croupier."""
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
    """Restart kube-scheduler without the extender."""
    settings = controlplane.scheduler_configuration(lab.site)
    (lab.folder / f"{SCHEDULER}.yaml").write_text(yaml.safe_dump(settings))
    await lab.start(SCHEDULER)
    await lab.ready([SCHEDULER])


async def _until_opened(api: Client) -> None:
    """Wait until every node has a NodeReservation with a status."""
    nodes = len((await api.list(NODES)).items)
    await _until(api, lambda ledgers: sum(ledger.status.cards is not None for ledger in ledgers) == nodes)


async def _until_free(api: Client) -> None:
    """Wait until no ledger has holders."""
    await _until(
        api, lambda ledgers: not any(card.holders for ledger in ledgers for card in ledger.spec.cards)
    )


async def _until(api: Client, good: Callable[[Sequence[NodeReservation]], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not good((await api.list(NODE_RESERVATIONS)).items):  # noqa: ASYNC110 (others change it)
            await asyncio.sleep(POLL)
