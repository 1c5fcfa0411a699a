"""One API server, and for each test its own webhook for its own namespace."""

from collections.abc import AsyncIterator

import pytest_asyncio

from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.lab.cluster import Cluster
from tests.admission import desk as envs
from tests.admission.desk import Desk


@pytest_asyncio.fixture
async def api(cluster: Cluster) -> AsyncIterator[Client]:
    async with client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


@pytest_asyncio.fixture
async def env(api: Client, lab: object, namespace: str) -> AsyncIterator[Desk]:
    """Not serving yet. (A remote API server could not reach the webhook, so this needs a lab.)"""
    port = envs.free_port()
    made = Desk(api, namespace, envs.webhook_options(namespace, port), port)
    yield made
    await made.leave()
