"""A world on the shared cluster, with either book."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from croupier.kube import client, config
from tests.controllers import world as worlds
from tests.controllers.world import World


@pytest_asyncio.fixture(params=worlds.BOTH)
async def world(
    cluster: Any, clean_cluster: None, namespace: str, request: pytest.FixtureRequest
) -> AsyncIterator[World]:
    async with (
        client.connect(config.load(cluster.kubeconfig), field_manager="test") as api,
        worlds.world(api, namespace, request.param) as made,
    ):
        yield made
    await asyncio.sleep(0.05)  # connections with TLS close a moment after their session


in_the_api_server = pytest.mark.parametrize("world", ["CRD"], indirect=True)
"""For what only a NodeReservation has."""
