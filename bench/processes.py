"""The processes of Croupier next to kube-scheduler."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import yaml

from croupier.api.kinds import NODE_RESERVATIONS, NODES
from croupier.api.mps import NodeReservation
from croupier.capacity.manager import CapacityManagerKind
from croupier.kube.client.api_client import Client
from croupier_lab import controlplane, croupier_processes
from croupier_lab.controlplane import SCHEDULER
from croupier_lab.croupier_processes import EXTENDER, MANAGER
from croupier_lab.lab import Lab
from croupier_lab.progress import NoProgress

PROCESSES: Mapping[CapacityManagerKind, Sequence[str]] = {"InMemory": (EXTENDER,), "CRD": (EXTENDER, MANAGER)}
POLL = 0.3
TIMEOUT = 180.0


@asynccontextmanager
async def running(
    lab: Lab, api: Client, *, book: CapacityManagerKind | None, strategy: str
) -> AsyncIterator[dict[str, int]]:
    """Run kube-scheduler with Croupier, or alone without `book`; yields the names and pids of Croupier."""
    if book is None:
        await _stock_scheduler(lab)
        yield {}
        return
    await croupier_processes.start_croupier(lab, book, NoProgress(), strategy=strategy)
    try:
        if book == "CRD":
            await _until_ledgers_exist(api)
        yield {name: lab.process(name).pid for name in PROCESSES[book]}
        if book == "CRD":
            await _until_free(api)
    finally:
        await croupier_processes.stop_croupier(lab)


async def _stock_scheduler(lab: Lab) -> None:
    """Restart kube-scheduler without the extender."""
    settings = controlplane.scheduler_configuration(lab.site)
    (lab.folder / f"{SCHEDULER}.yaml").write_text(yaml.safe_dump(settings))
    await lab.start(SCHEDULER)
    await lab.ready([SCHEDULER])


async def _until_ledgers_exist(api: Client) -> None:
    """Wait until every node has a NodeReservation."""
    nodes = len((await api.list(NODES)).items)
    await _until(api, lambda ledgers: len(ledgers) == nodes)


async def _until_free(api: Client) -> None:
    """Wait until no ledger has holders."""
    await _until(
        api, lambda ledgers: not any(card.holders for ledger in ledgers for card in ledger.spec.cards)
    )


async def _until(api: Client, good: Callable[[Sequence[NodeReservation]], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not good((await api.list(NODE_RESERVATIONS)).items):  # noqa: ASYNC110 (others change it)
            await asyncio.sleep(POLL)
