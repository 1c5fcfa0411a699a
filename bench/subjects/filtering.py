"""An extender with an in-memory ledger that contains running pods; filtering needs no API server."""

import asyncio
import sys
import time
from pathlib import Path

import msgspec

from bench.subjects.meter import read_command, report
from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.extender.server import Extender
from croupier.extender.service import ExtenderOptions
from croupier.kube.client import api_client, config
from croupier.kube.serving import logs

CARDS = 8


class Task(msgspec.Struct, frozen=True):
    nodes: int
    pods: int


async def main(kubeconfig: Path) -> None:
    logs.setup(level="error")
    async with api_client.connect(config.load(kubeconfig)) as api:
        while line := await read_command():
            task = msgspec.json.decode(line, type=Task)
            manager = await filled(task)
            async with Extender(
                manager, api, settings=ExtenderOptions(strategy="BinPack")
            ).serving() as listening:
                report(url=listening.url)
                await changes(manager)


async def changes(manager: InMemoryCapacityManager) -> None:
    """Reserve for each line `pod node`, as a bind would between two filter calls; until `enough`.

    Reports the CPU time before each reservation, so that differences are mostly the cost of filtering.
    """
    while (line := await read_command()) and line != "enough":
        pod, node = line.split()
        spent = time.process_time()
        await manager.reserve(pod, node, 1, 1)
        report(spent=spent)


async def filled(task: Task) -> InMemoryCapacityManager:
    """A ledger in which every pod holds one percent of a card, spread evenly."""
    manager = InMemoryCapacityManager(strategy="BinPack")
    holders: dict[tuple[int, int], dict[str, int]] = {}
    for number in range(task.pods):
        where = (number % task.nodes, number // task.nodes % CARDS)
        holders.setdefault(where, {})[f"bench/runs-{number}/{number}"] = 1
    for node in range(task.nodes):
        name = f"gpu-worker-{node}"
        cards = tuple(
            LedgerCard(f"{name}-gpu-{index}", index, holders=holders.get((node, index), {}))
            for index in range(CARDS)
        )
        await manager.open(name, Ledger(name, cards))
    return manager


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
