"""Controllers leave nothing behind after a leadership: indexes and subscribers end with it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.settings_order import Order
from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.kube.health import Health
from croupier.kube.metrics import Metrics
from croupier.wiring import manager
from croupier.wiring.bootstrap import Starting
from croupier.wiring.settings import Orders
from croupier.wiring.surface import Settings, Surface
from tests.kube.waiting import until

PATIENCE = 60.0
OFF = Order(enabled=False)
TERMS = 10
WORKED_ON = (
    *(
        kind.full_name
        for kind in (
            kinds.NODES,
            kinds.GPU_DEVICES,
            kinds.GPU_POOLS,
            kinds.RESERVATIONS,
            kinds.POD_ALLOCATIONS,
        )
    ),
    "leases of node agents",
    "pods that wait for a pool",
)
"""Caches with subscribers during a leadership."""


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


@contextlib.asynccontextmanager
async def managed(api: Client, namespace: str) -> AsyncIterator[Surface]:
    """All controllers of a disabled manager, in this process."""
    settings = Settings(book="CRD", namespace=namespace)
    surface = Surface(api, Metrics(CollectorRegistry()), Health(), settings, Orders(OFF))
    stop = asyncio.Event()
    parts = manager.parts(surface, manager.CONTROLLERS, Starting())
    working = asyncio.gather(*(part.run(stop) for part in parts))
    try:
        yield surface
    finally:
        stop.set()
        await working


def listeners(surface: Surface) -> dict[tuple[str, str], float]:
    """Indexes and subscribers, by cache and kind."""
    return {
        (sample.labels["resource"], sample.labels["kind"]): sample.value
        for family in surface.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "croupier_store_listeners"
    }


def in_office(surface: Surface) -> bool:
    """All leases are held, and the ledger's capacity manager has subscribed to its cache."""
    families = surface.metrics.registry.collect()
    leaders = [
        sample.value for family in families for sample in family.samples if sample.name == "croupier_leader"
    ]
    readers = listeners(surface)[kinds.NODE_RESERVATIONS.full_name, "subscriber"]
    return sum(leaders) == len(manager.CONTROLLERS) and readers == 2


@pytest.mark.usefixtures("clean_cluster")
async def test_ten_leaderships_leave_as_many_indexes_and_subscribers_as_one(api, namespace):
    wish = {"namespace": namespace, "podName": "missing", "desiredCPULimit": "1"}
    await api.create(
        kinds.POD_ALLOCATIONS.raw, {"metadata": {"name": "a", "namespace": namespace}, "spec": wish}
    )
    async with managed(api, namespace) as surface:
        await until(lambda: in_office(surface), "all to lead", PATIENCE)
        idle = listeners(surface)

        def at_work() -> bool:
            now = listeners(surface)
            return all(now[cache, "subscriber"] > idle[cache, "subscriber"] for cache in WORKED_ON)

        for _ in range(TERMS):
            surface.orders.give(Order())
            await until(at_work, "every controller to work", PATIENCE)
            surface.orders.give(OFF)
            await until(lambda: listeners(surface) == idle, f"{idle} again", PATIENCE)
