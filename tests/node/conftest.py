"""The library of the fake NVIDIA driver, and a simulated node on a real API server for its agent."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.node import nvml_env
from tests.node.agent_env import AgentEnv, agent_env
from tests.polling import until


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if nvml_env.compiler() is None:
        pytest.skip("no C compiler (cc) on this machine: the fake driver cannot be built")
    return nvml_env.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="module")
def ours(cluster: Cluster, crds: Any) -> Iterator[str]:
    """The namespace of Leases and the ConfigMaps of pools."""
    name = shared_cluster.create_namespace(cluster, "agents")
    yield name
    shared_cluster.delete_namespace(cluster, name)


@pytest_asyncio.fixture
async def env(cluster: Cluster, ours: str, tmp_path: Path) -> AsyncIterator[AgentEnv]:
    name = f"gpu-{secrets.token_hex(3)}"
    async with agent_env(cluster.kubeconfig, name, ours, tmp_path) as made:
        body = {"metadata": {"name": name, "labels": {"nvidia.com/gpu.family": "hand-made"}}}
        await made.api.create(kinds.NODES, body)
        await until(lambda: made.nodes.named(name), "the node to be seen")
        try:
            yield made
        finally:
            await made.leaves()
