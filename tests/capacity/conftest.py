"""Fixtures with both capacity managers, for the tests of their common contract."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.capacity.manager import CapacityManager
from tests.capacity import env
from tests.capacity.env import FixedClock


@pytest.fixture(params=["InMemory", "CRD"])
def kept_in(request: pytest.FixtureRequest) -> Path | None:
    """The kubeconfig of the cluster that stores the ledgers; None in memory."""
    if request.param == "InMemory":
        return None
    request.getfixturevalue("clean_cluster")
    kubeconfig: Path = request.getfixturevalue("cluster").kubeconfig
    return kubeconfig


@pytest_asyncio.fixture
async def manager(kept_in: Path | None) -> AsyncIterator[CapacityManager]:
    if kept_in is None:
        yield InMemoryCapacityManager(clock=FixedClock())
        return
    async with env.capacity_env(kept_in) as desk:
        yield desk.manager
