"""A client of the test cluster."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as connected:
        yield connected
