"""Fixtures on the shared cluster, with both capacity managers.

Each test deletes the objects that it created. Deleting through kubectl, as `clean_cluster` does, would take
longer than most of these tests.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from croupier.kube.client import api_client, config
from croupier_lab import shared_cluster
from tests.controllers import ledger_env as worlds
from tests.controllers.inventory_env import NODE_FEATURE_CRD, InventoryEnv
from tests.controllers.ledger_env import LedgerEnv


@pytest.fixture(scope="module")
def shared_namespace(cluster: Any, crds: Any) -> Iterator[str]:
    """One namespace for all tests of a file."""
    name = shared_cluster.create_namespace(cluster, "ledger-stories")
    yield name
    shared_cluster.delete_namespace(cluster, name, shared_cluster.namespaced(crds))


@pytest_asyncio.fixture(params=worlds.BOTH_MODES)
async def world(
    cluster: Any, shared_namespace: str, request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> AsyncIterator[LedgerEnv]:
    if pytestconfig.getoption("--kubeconfig"):
        request.getfixturevalue("clean_cluster")  # skips if other objects of our kinds exist
    async with (
        api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as api,
        worlds.ledger_env(api, shared_namespace, request.param) as made,
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
    shared_cluster.install(cluster, {"nodefeatures": NODE_FEATURE_CRD})
    name = shared_cluster.create_namespace(cluster, "inventory")
    yield name
    shared_cluster.delete_namespace(cluster, name)


@pytest_asyncio.fixture
async def inventory_env(cluster: Any, inventory_namespace: str) -> AsyncIterator[InventoryEnv]:
    """Nodes and their cards, deleted after the test."""
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        made = InventoryEnv(api, inventory_namespace)
        try:
            yield made
        finally:
            await made.leave()
