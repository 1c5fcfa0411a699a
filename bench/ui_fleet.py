"""The fleet of the benchmark of the page: nodes with eight cards, and pods that hold parts of them."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any, Final

from bench import card_objects, filled_cluster
from bench.card_objects import WrittenCard
from croupier.api import kinds
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.kube.client.api_client import Client, PatchType
from croupier_lab import nodes
from croupier_lab.nodes import SimulatedNode
from croupier_lab.progress import ProgressReporter

NAMESPACES: Final = tuple(f"team-{number}" for number in range(10))
POOLS: Final = tuple(f"pool-{number}" for number in range(5))
POOL_LABEL: Final = "bench/pool"
SPARE_EVERY: Final = 16
"""One card in so many is in no pool and waits for approval."""


@dataclass(frozen=True, slots=True)
class PageSizes:
    nodes: int
    cards: int
    """Per node."""
    pods: int
    load_seconds: float
    """Of 100 changes a second, for the figures of the browser and the server."""
    churn_seconds: float
    """Of further changes, for the memory."""
    streams: int
    repeats: int
    """Of a change until it is painted."""
    loads: int
    """Of the page, and of each answer of the server."""

    @property
    def all_cards(self) -> int:
        return self.nodes * self.cards


FULL: Final = PageSizes(500, 8, 10_000, load_seconds=60, churn_seconds=540, streams=200, repeats=100, loads=5)
QUICK: Final = PageSizes(5, 4, 20, load_seconds=1, churn_seconds=1, streams=5, repeats=2, loads=1)


def node_name(number: int) -> str:
    return f"gpu-{number:03}"


def is_spare(number: int) -> bool:
    return number % SPARE_EVERY == SPARE_EVERY - 1


def spare_cards(sizes: PageSizes, most: int) -> list[str]:
    """Cards that wait for approval."""
    spare = [number for number in range(sizes.all_cards) if is_spare(number)][:most]
    return [card_objects.name(node_name(number // sizes.cards), number % sizes.cards) for number in spare]


async def write(api: Client, sizes: PageSizes, show: ProgressReporter) -> None:
    """Create the whole fleet."""
    await card_objects.write_namespaces(api, (*NAMESPACES, DEFAULT_NAMESPACE))
    await filled_cluster.in_parallel(lambda number: _node(api, number, sizes), range(sizes.nodes))
    for pool in POOLS:
        await _pool(api, pool, sizes)
    holders: dict[int, dict[str, int]] = {}

    async def pod(number: int) -> None:
        if number % 500 == 0:
            show.advance("Creating pods", number, sizes.pods)
        card = number % sizes.all_cards
        name = f"train-{number % 97}-{number:05x}"
        body = card_objects.pod(NAMESPACES[number % 10], name, node=node_name(card // sizes.cards))
        created = await api.create(kinds.PODS, body)
        meta = created.metadata
        holders.setdefault(card, {})[f"{meta.namespace}/{name}/{meta.uid}"] = 20

    await filled_cluster.in_parallel(pod, range(sizes.pods))
    cards = [_card(number, holders.get(number, {}), sizes) for number in range(sizes.all_cards)]
    show.advance("Creating cards", 0, len(cards))
    await card_objects.write_cards(api, cards)
    show.settle()


def _card(number: int, holders: dict[str, int], sizes: PageSizes) -> WrittenCard:
    node, index = divmod(number, sizes.cards)
    pool = "" if is_spare(number) else POOLS[node % len(POOLS)]
    return WrittenCard(node_name(node), index, card_objects.percent(holders), pool)


async def _node(api: Client, number: int, sizes: PageSizes) -> None:
    zone = nodes.ZONES[number % len(nodes.ZONES)]
    made = SimulatedNode(node_name(number), zone, nodes.parse_cards(f"H100:{sizes.cards}"))
    await card_objects.write_node(api, made, {POOL_LABEL: POOLS[number % len(POOLS)]})


async def _pool(api: Client, name: str, sizes: PageSizes) -> None:
    members = sum(1 for number in range(sizes.nodes) if POOLS[number % len(POOLS)] == name)
    spec = {"allocation": {"mode": "MPS"}, "nodeSelector": {"matchLabels": {POOL_LABEL: name}}}
    total = members * sizes.cards * 100
    capacity = {"total": total, "used": 0, "booked": 0, "available": total, "unit": "Percent"}
    status = {
        "allocation": spec["allocation"],
        "capacity": capacity,
        "conditions": [card_objects.condition("Available", "True", "Serving")],
    }
    await card_objects.write_pool(api, {"metadata": {"name": name}, "spec": spec}, status)


@dataclass
class LedgerLoad:
    """Changes of the holders of random cards, as the extender writes them."""

    api: Client
    sizes: PageSizes
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 (a load, no secret)
    written: int = 0

    async def put(self, card: int, share: int) -> None:
        """Set the only holder of a card."""
        node, index = divmod(card, self.sizes.cards)
        self.written += 1
        holder = f"{NAMESPACES[card % 10]}/job-{self.written:06}/00000000-0000-0000-0000-{self.written:012}"
        change: dict[str, Any] = {
            "op": "add",
            "path": f"/spec/cards/{index}/holders",
            "value": {holder: share},
        }
        await self.api.patch(
            kinds.NODE_RESERVATIONS.raw, node_name(node), [change], patch_type=PatchType.JSON
        )

    async def run(self, seconds: float, *, rate: float = 100.0) -> float:
        """Change cards at this rate; the rate that was reached."""
        began, sent = time.monotonic(), 0
        running: set[asyncio.Task[None]] = set()
        while (elapsed := time.monotonic() - began) < seconds:
            while sent < elapsed * rate and len(running) < filled_cluster.CONCURRENCY:
                card = self.chance.randrange(self.sizes.all_cards)
                task = asyncio.create_task(self.put(card, self.chance.randint(1, 100)))
                running.add(task)
                task.add_done_callback(running.discard)
                sent += 1
            await asyncio.sleep(0.005)
        await asyncio.gather(*running)
        return sent / (time.monotonic() - began)
