"""Contention of many clients that reserve concurrently: on one node, and spread over hundreds.

A client is either a separate process (one of several schedulers) or a concurrent caller in one process (a
bind of one scheduler, where batching helps). Croupier and the naive loop alternate, so that both see the
same load.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import msgspec

from bench import env, subject_process
from bench.env import BenchEnv
from bench.figures import OURS, Figure
from bench.subject_process import SubjectProcess
from bench.subjects import reserving
from bench.subjects.reserving import Task
from croupier.api.kinds import NODE_RESERVATIONS
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.kube.client import api_client, config
from croupier_lab.controlplane import API_COMPONENTS
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan

NAIVE = "naive"


@dataclass(frozen=True, slots=True)
class ClientLayout:
    """Number of processes, and of concurrent callers in each."""

    processes: int
    callers: int

    def __str__(self) -> str:
        if self.processes == self.callers == 1:
            return "1 client"
        if self.callers == 1:
            return f"{self.processes} processes"
        return f"{self.callers} callers in one process"


@dataclass(frozen=True, slots=True)
class ContentionSizes:
    nodes: int
    layouts: Sequence[ClientLayout]
    seconds: float
    rounds: int


FULL = ContentionSizes(
    300,
    (ClientLayout(1, 1), ClientLayout(1, 8), ClientLayout(1, 32), ClientLayout(8, 1), ClientLayout(32, 1)),
    2.5,
    2,
)
QUICK = ContentionSizes(3, (ClientLayout(1, 4), ClientLayout(2, 1)), 0.4, 1)


@dataclass(slots=True)
class ContentionResult:
    """Sums of one subject over all rounds of a layout."""

    reserves: int = 0
    conflicts: int = 0
    writes: int = 0
    seconds: float = 0.0

    def add(self, said: dict[str, float]) -> None:
        self.reserves += int(said["reserves"])
        self.conflicts += int(said["conflicts"])
        self.writes += int(said["writes"])


async def contention(on: BenchEnv) -> list[Figure]:
    sizes = QUICK if on.quick else FULL
    most = max(layout.processes for layout in sizes.layouts)
    async with on.raised(LabPlan(parts=API_COMPONENTS)) as lab:
        await env.install_crds(lab)
        await open_ledgers(lab, sizes.nodes)
        async with start_clients(lab, most) as clients:
            return [
                figure
                for nodes in (1, sizes.nodes)
                for layout in sizes.layouts
                for figure in await compared(clients, layout, nodes, sizes)
            ]


async def open_ledgers(lab: Lab, count: int) -> None:
    async with api_client.connect(config.load(lab.kubeconfig)) as api:
        for number in range(count):
            node = f"node-{number}"
            cards = tuple(LedgerCard(f"{node}-gpu-{index}", index) for index in range(8))
            await api.create(NODE_RESERVATIONS.raw, reserving.body(Ledger(node, cards)))


@asynccontextmanager
async def start_clients(lab: Lab, count: int) -> AsyncIterator[list[SubjectProcess]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(subject_process.started("reserving", lab.kubeconfig, number))
            for number in range(count)
        ]


async def compared(
    clients: Sequence[SubjectProcess], layout: ClientLayout, nodes: int, sizes: ContentionSizes
) -> list[Figure]:
    tallies = {OURS: ContentionResult(), NAIVE: ContentionResult()}
    for _ in range(sizes.rounds):
        for who, tally in tallies.items():
            task = Task(who, nodes, layout.callers, sizes.seconds)
            for said in await run_together(clients[: layout.processes], task):
                tally.add(said)
            tally.seconds += sizes.seconds
    where = "one node" if nodes == 1 else f"{nodes} nodes"
    return _figures(f"{where}, {layout}", tallies)


async def run_together(clients: Sequence[SubjectProcess], task: Task) -> list[dict[str, float]]:
    """Run the task in all clients at the same time, after all are ready."""
    text = msgspec.json.encode(task).decode()
    for step in (text, "go"):
        for subject in clients:
            await subject.tell(step)
        answers = await asyncio.gather(*(subject.hear() for subject in clients))
    return answers


def _figures(where: str, tallies: dict[str, ContentionResult]) -> list[Figure]:
    rates = {who: tally.reserves / tally.seconds for who, tally in tallies.items()}
    # A reserve and its release are two changes that had to succeed.
    conflicts = {who: tally.conflicts / max(1, 2 * tally.reserves) for who, tally in tallies.items()}
    writes = {who: tally.writes / max(1, 2 * tally.reserves) for who, tally in tallies.items()}
    return [
        Figure("contention", f"{where}: reserves", "/s", rates),
        Figure("contention", f"{where}: conflicts per success", "", conflicts),
        Figure("contention", f"{where}: writes per success", "", writes),
    ]
