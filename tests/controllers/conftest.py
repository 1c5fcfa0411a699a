"""A world on the shared cluster, with either book.

Each test leaves as it came by naming what it made. Doing that through kubectl, as `clean_cluster` does, would
take longer than most of these tests.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from croupier.kube import client, config
from croupier.lab import borrowed
from tests.controllers import world as worlds
from tests.controllers.inventory_world import NODE_FEATURE_CRD, Stock
from tests.controllers.world import World


@pytest.fixture(scope="module")
def town(cluster: Any, crds: Any) -> Iterator[str]:
    """One namespace for all stories of a file."""
    name = borrowed.create_namespace(cluster, "ledger-stories")
    yield name
    borrowed.delete_namespace(cluster, name, borrowed.namespaced(crds))


@pytest_asyncio.fixture(params=worlds.BOTH)
async def world(
    cluster: Any, town: str, request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> AsyncIterator[World]:
    if pytestconfig.getoption("--kubeconfig"):
        request.getfixturevalue("clean_cluster")  # skips where others use our kinds
    async with (
        client.connect(config.load(cluster.kubeconfig), field_manager="test") as api,
        worlds.world(api, town, request.param) as made,
    ):
        try:
            yield made
        finally:
            await made.leave()


in_the_api_server = pytest.mark.parametrize("world", ["CRD"], indirect=True)
"""For what only a NodeReservation has."""


@pytest.fixture(scope="module")
def shelf(cluster: Any, crds: Any) -> Iterator[str]:
    """One namespace for Leases and NodeFeatures of all stories of a file, with NFD's kind installed."""
    borrowed.install(cluster, {"nodefeatures": NODE_FEATURE_CRD})
    name = borrowed.create_namespace(cluster, "inventory")
    yield name
    borrowed.delete_namespace(cluster, name)


@pytest_asyncio.fixture
async def stock(cluster: Any, shelf: str) -> AsyncIterator[Stock]:
    """Nodes and their cards; what is made of them is gone afterwards."""
    async with client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        made = Stock(api, shelf)
        try:
            yield made
        finally:
            await made.leave()
