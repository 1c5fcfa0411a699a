"""One API server, and for each test its own webhook for its own namespace."""

from collections.abc import AsyncIterator

import pytest_asyncio

from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier_lab.cluster import Cluster
from tests.admission import webhook_env as envs
from tests.admission.webhook_env import WebhookEnv


@pytest_asyncio.fixture
async def api(cluster: Cluster) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


@pytest_asyncio.fixture
async def env(api: Client, lab: object, namespace: str) -> AsyncIterator[WebhookEnv]:
    """Not serving yet. (A remote API server could not reach the webhook, so this needs a lab.)"""
    port = envs.free_port()
    made = WebhookEnv(api, namespace, envs.webhook_options(namespace, port), port)
    yield made
    await made.leave()
