"""An extender with the book in memory, full of pods that run already: filtering needs no API server."""

import asyncio
import sys
import time
from pathlib import Path

import msgspec

from bench.subjects.meter import asked, say
from croupier.book.memory import InMemoryCapacityManager
from croupier.core.ledgers.ledger import Card, Ledger
from croupier.extender.server import Extender
from croupier.extender.service import Settings
from croupier.kube import client, config, logs

CARDS = 8


class Task(msgspec.Struct, frozen=True):
    nodes: int
    pods: int


async def main(kubeconfig: Path) -> None:
    logs.setup(level="error")
    async with client.connect(config.load(kubeconfig)) as api:
        while line := await asked():
            task = msgspec.json.decode(line, type=Task)
            book = await filled(task)
            async with Extender(book, api, settings=Settings(strategy="BinPack")).serving() as listening:
                say(url=listening.url)
                await changes(book)


async def changes(book: InMemoryCapacityManager) -> None:
    """What a bind would do to the book between two filters, for each line `pod node`; until `enough`.

    Says the CPU time of this process before it, so that differences are mostly what filters cost.
    """
    while (line := await asked()) and line != "enough":
        pod, node = line.split()
        spent = time.process_time()
        await book.reserve(pod, node, 1, 1)
        say(spent=spent)


async def filled(task: Task) -> InMemoryCapacityManager:
    """Every pod has one percent of a card, spread evenly: so any number of nodes has room for all."""
    book = InMemoryCapacityManager(strategy="BinPack")
    holders: dict[tuple[int, int], dict[str, int]] = {}
    for number in range(task.pods):
        where = (number % task.nodes, number // task.nodes % CARDS)
        holders.setdefault(where, {})[f"bench/runs-{number}/{number}"] = 1
    for node in range(task.nodes):
        name = f"gpu-worker-{node}"
        cards = tuple(
            Card(f"{name}-gpu-{index}", index, holders=holders.get((node, index), {}))
            for index in range(CARDS)
        )
        await book.open(name, Ledger(name, cards))
    return book


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
