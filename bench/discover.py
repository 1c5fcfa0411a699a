"""Discovery of a fleet of cards until they are in a pool: duration, writes per card, and idle writes.

One process simulates the agents of all nodes, so the control plane is measured: the manager and the API
server. The manager starts after the agents have reported, as after an upgrade. An idle minute must write
nothing but heartbeats.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

import psutil

from bench import cluster, cost
from bench.cluster import BenchCluster
from bench.env import BenchEnv
from bench.figures import OURS, Figure
from croupier.api import kinds
from croupier.api.gpu import GPUDevice
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client.api_client import Client, Selection
from croupier_lab import agents, croupier_processes
from croupier_lab.agents import FLEET
from croupier_lab.croupier_processes import EXTENDER, MANAGER, NAMESPACE

TIMEOUT = 900.0
POLL = 1.0
IDLE_SECONDS = 60.0
QUICK_IDLE_SECONDS = 4.0
POOL = "everything"
HEARTBEATS = "leases"
MIB = 1 << 20


async def fleet(on: BenchEnv) -> list[Figure]:
    nodes = 3 if on.quick else 500
    cards = nodes * 8
    async with cluster.raised(on, nodes) as field:
        try:
            async with _followed(field.api) as devices:
                return await _measured(on, field, devices, cards)
        finally:
            await croupier_processes.stop_croupier(field.lab)


async def _measured(on: BenchEnv, field: BenchCluster, devices: Store[GPUDevice], cards: int) -> list[Figure]:
    start = await cost.measure(field.api, {})
    began = time.perf_counter()
    await agents.start_fleet(field.lab, on.show, heartbeat=2.0 if on.quick else 10.0)
    await _until_reported(field.api, cards // 8)
    reported = time.perf_counter() - began
    began = time.perf_counter()
    await croupier_processes.start_croupier(field.lab, "CRD", on.show, cards=True)
    await _until(devices, cards, lambda device: device.status.phase == "Ready")
    discovered = time.perf_counter() - began
    on.show.step(f"{cards:,} cards are ready; creating a pool")
    began = time.perf_counter()
    await field.api.create(kinds.GPU_POOLS.raw, _pool())
    await _until(devices, cards, lambda device: device.status.state == "Assigned")
    await _until_counted(field.api, cards)
    pooled = time.perf_counter() - began
    memory = {name: psutil.Process(field.lab.process(name).pid).memory_info().rss for name in PROCESSES}
    on.show.step("Waiting until the control plane is idle, then measuring an idle minute")
    began = time.perf_counter()
    await _until_idle(on, field)
    settled = time.perf_counter() - began
    spent = (await cost.measure(field.api, {})).since(start).writes
    idle = await _written_within(field, QUICK_IDLE_SECONDS if on.quick else IDLE_SECONDS)
    per_card = Counter({what: count for what, count in spent.items() if HEARTBEATS not in what})
    which = {what: round(count / cards, 2) for what, count in per_card.most_common(6)}
    return [
        Figure("discover", f"{cards // 8} agents have reported", "s", {OURS: reported}),
        Figure(
            "discover",
            f"{cards:,} cards on {cards // 8} nodes discovered and validated",
            "s",
            {OURS: discovered},
        ),
        Figure("discover", f"{cards:,} cards assigned to a pool and counted", "s", {OURS: pooled}),
        Figure("discover", "control plane idle", "s", {OURS: settled}),
        Figure(
            "discover", "writes per card without heartbeats", "", {OURS: per_card.total() / cards, **which}
        ),
        *(
            Figure("discover", f"memory of {name}", "MiB", {OURS: used / MIB})
            for name, used in memory.items()
        ),
        Figure("discover", "writes in an idle minute without heartbeats", "", {OURS: float(idle.total())}),
    ]


PROCESSES = (MANAGER, EXTENDER, FLEET)


def _pool() -> dict[str, object]:
    return {
        "metadata": {"name": POOL},
        "spec": {"allocation": {"mode": "Exclusive"}, "deviceAssignment": {"requireAnnotation": False}},
    }


async def _until_idle(on: BenchEnv, field: BenchCluster) -> None:
    """Wait until nothing is written: Events and informational status fields are rate-limited."""
    async with asyncio.timeout(TIMEOUT):
        while (await _written_within(field, 2.0 if on.quick else 10.0)).total():
            pass


async def _written_within(field: BenchCluster, seconds: float) -> Counter[str]:
    before = await cost.measure(field.api, {})
    await asyncio.sleep(seconds)
    written = (await cost.measure(field.api, {})).since(before).writes
    return Counter({what: count for what, count in written.items() if HEARTBEATS not in what})


async def _until_reported(api: Client, agents: int) -> None:
    async with asyncio.timeout(TIMEOUT):
        while len((await api.list(kinds.LEASES, Selection(NAMESPACE))).items) < agents:  # noqa: ASYNC110 (others change it)
            await asyncio.sleep(POLL)


async def _until(devices: Store[GPUDevice], cards: int, good: Callable[[GPUDevice], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while sum(map(good, devices)) < cards:  # noqa: ASYNC110 (others change it)
            await asyncio.sleep(POLL)


@contextlib.asynccontextmanager
async def _followed(api: Client) -> AsyncIterator[Store[GPUDevice]]:
    """Watch the cards instead of listing them repeatedly."""
    store = Store(kinds.GPU_DEVICES)
    following = asyncio.create_task(Reflector(api, store).run())
    try:
        yield store
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _until_counted(api: Client, cards: int) -> None:
    async with asyncio.timeout(TIMEOUT):
        while True:
            capacity = (await api.get(kinds.GPU_POOLS, POOL)).status.capacity
            if capacity is not None and capacity.total == cards:
                return
            await asyncio.sleep(POLL)
