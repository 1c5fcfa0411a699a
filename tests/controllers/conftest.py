"""Fixtures on the shared cluster, with both capacity managers.

Each test deletes the objects that it created. Deleting through kubectl, as `clean_cluster` does, would take
longer than most of these tests.
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
def shared_namespace(cluster: Any, crds: Any) -> Iterator[str]:
    """One namespace for all tests of a file."""
    name = borrowed.create_namespace(cluster, "ledger-stories")
    yield name
    borrowed.delete_namespace(cluster, name, borrowed.namespaced(crds))


@pytest_asyncio.fixture(params=worlds.BOTH)
async def world(
    cluster: Any, shared_namespace: str, request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> AsyncIterator[World]:
    if pytestconfig.getoption("--kubeconfig"):
        request.getfixturevalue("clean_cluster")  # skips if other objects of our kinds exist
    async with (
        client.connect(config.load(cluster.kubeconfig), field_manager="test") as api,
        worlds.world(api, shared_namespace, request.param) as made,
    ):
        try:
            yield made
        finally:
            await made.leave()


in_the_api_server = pytest.mark.parametrize("world", ["CRD"], indirect=True)
"""For tests that need a NodeReservation."""


@pytest.fixture(scope="module")
def inventory_namespace(cluster: Any, crds: Any) -> Iterator[str]:
    """One namespace for Leases and NodeFeatures of all tests of a file, with the CRD of NFD installed."""
    borrowed.install(cluster, {"nodefeatures": NODE_FEATURE_CRD})
    name = borrowed.create_namespace(cluster, "inventory")
    yield name
    borrowed.delete_namespace(cluster, name)


@pytest_asyncio.fixture
async def inventory_env(cluster: Any, inventory_namespace: str) -> AsyncIterator[Stock]:
    """Nodes and their cards, deleted after the test."""
    async with client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        made = Stock(api, inventory_namespace)
        try:
            yield made
        finally:
            await made.leave()
