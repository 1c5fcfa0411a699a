"""One API server, and for each test a webhook of its own that only its own namespace is guarded by."""

from collections.abc import AsyncIterator

import pytest_asyncio

from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.lab.cluster import Cluster
from tests.admission import desk as desks
from tests.admission.desk import Desk


@pytest_asyncio.fixture
async def api(cluster: Cluster) -> AsyncIterator[Client]:
    async with client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


@pytest_asyncio.fixture
async def desk(api: Client, lab: object, namespace: str) -> AsyncIterator[Desk]:
    """Closed: a test opens it. (An API server elsewhere could not reach us, so this takes a lab.)"""
    port = desks.free_port()
    made = Desk(api, namespace, desks.wish(namespace, port), port)
    yield made
    await made.leave()
