"""Fixtures: a kube-scheduler, both capacity managers, and a clean environment for each test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.capacity.crd import CRDCapacityManager
from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.capacity.manager import CapacityManager
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier_lab import process, shared_cluster
from croupier_lab.lab import Lab
from tests import polling
from tests.extender import env as tables
from tests.extender.env import ExtenderEnv, RunningScheduler


@pytest.fixture(scope="session")
def dealer(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningScheduler]:
    """A kube-scheduler that is configured with an extender."""
    running = tables.start_scheduler(lab, tmp_path_factory.mktemp("scheduler"))
    yield running
    asyncio.run(process.stop(running.process))


@pytest_asyncio.fixture
async def api(lab: Lab) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(lab.kubeconfig)) as connected:
        yield connected


@contextlib.asynccontextmanager
async def crd_manager(api: Client) -> AsyncIterator[CRDCapacityManager]:
    """A CRDCapacityManager with its own watch."""
    store = Store(kinds.NODE_RESERVATIONS)
    reflector = Reflector(api, store)
    reading = asyncio.create_task(reflector.run())
    await polling.until(lambda: reflector.has_synced, "the NodeReservations")
    manager = CRDCapacityManager(api, store)
    try:
        yield manager
    finally:
        await manager.finish()
        reading.cancel()
        await asyncio.wait({reading})


@pytest_asyncio.fixture(params=["memory", "crd"])
async def manager(request: pytest.FixtureRequest, api: Client) -> AsyncIterator[CapacityManager]:
    if request.param == "memory":
        yield InMemoryCapacityManager()
        return
    async with crd_manager(api) as crd:
        yield crd


@pytest.fixture(scope="session")
def floor(lab: Lab, crds: object) -> Iterator[str]:
    """One namespace for all tests; every test deletes its own objects, which is faster."""
    name = shared_cluster.create_namespace(lab.cluster, "extender")
    yield name
    shared_cluster.delete_namespace(lab.cluster, name)


@pytest_asyncio.fixture
async def table(
    api: Client, manager: CapacityManager, floor: str, dealer: RunningScheduler
) -> AsyncIterator[ExtenderEnv]:
    env = ExtenderEnv(api, manager, floor, dealer.port)
    yield env
    await env.clear()


@pytest_asyncio.fixture
async def bare(api: Client, manager: CapacityManager, floor: str) -> AsyncIterator[ExtenderEnv]:
    """An environment without scheduler: the test itself calls bind."""
    env = ExtenderEnv(api, manager, floor)
    yield env
    await env.clear()
