"""Fixtures: a kube-scheduler, both capacity managers, and a clean environment for each test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.book.crd import CRDCapacityManager
from croupier.book.manager import CapacityManager
from croupier.book.memory import InMemoryCapacityManager
from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.kube.reflector import Reflector
from croupier.kube.store import Store
from croupier.lab import borrowed, process
from croupier.lab.lab import Lab
from tests.extender import table as tables
from tests.extender.table import Dealer, Table
from tests.kube import waiting


@pytest.fixture(scope="session")
def dealer(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dealer]:
    """A kube-scheduler that is configured with an extender."""
    running = tables.hire(lab, tmp_path_factory.mktemp("scheduler"))
    yield running
    asyncio.run(process.stop(running.process))


@pytest_asyncio.fixture
async def api(lab: Lab) -> AsyncIterator[Client]:
    async with client.connect(config.load(lab.kubeconfig)) as connected:
        yield connected


@contextlib.asynccontextmanager
async def crd_book(api: Client) -> AsyncIterator[CRDCapacityManager]:
    """A CRDCapacityManager with its own watch."""
    store = Store(kinds.NODE_RESERVATIONS)
    reflector = Reflector(api, store)
    reading = asyncio.create_task(reflector.run())
    await waiting.until(lambda: reflector.has_synced, "the NodeReservations")
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
    async with crd_book(api) as crd:
        yield crd


@pytest.fixture(scope="session")
def floor(lab: Lab, crds: object) -> Iterator[str]:
    """One namespace for all tests; every test deletes its own objects, which is faster."""
    name = borrowed.create_namespace(lab.cluster, "extender")
    yield name
    borrowed.delete_namespace(lab.cluster, name)


@pytest_asyncio.fixture
async def table(api: Client, manager: CapacityManager, floor: str, dealer: Dealer) -> AsyncIterator[Table]:
    env = Table(api, manager, floor, dealer.port)
    yield env
    await env.clear()


@pytest_asyncio.fixture
async def bare(api: Client, manager: CapacityManager, floor: str) -> AsyncIterator[Table]:
    """An environment without scheduler: the test itself calls bind."""
    env = Table(api, manager, floor)
    yield env
    await env.clear()
