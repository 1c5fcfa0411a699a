"""The metrics of the node agent."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.node.agent.metrics import NodeAgentMetrics
from croupier_lab.cluster import Cluster
from tests.controllers.ledger_env import running
from tests.node.agent_env import AgentEnv, agent_env, layout
from tests.polling import until

GPU = "nvidia.com/gpu"
SMALL = "nvidia.com/mig-1g.10gb"


@pytest_asyncio.fixture
async def env(cluster: Cluster, crds: Any, namespace: str, tmp_path: Path) -> AsyncIterator[AgentEnv]:
    name = f"gpu-{secrets.token_hex(3)}"
    async with agent_env(cluster.kubeconfig, name, namespace, tmp_path) as made:
        await made.api.create(kinds.NODES, {"metadata": {"name": name}})
        await until(lambda: made.nodes.named(name), "the node to be seen")
        try:
            yield made
        finally:
            await made.leaves()


class Figures:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = NodeAgentMetrics(self.registry)

    def say(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"croupier_node_{name}", labels)

    def devices(self, resource: str) -> tuple[float | None, ...]:
        """The numbers of healthy and unhealthy devices."""
        return tuple(
            self.say("devices", resource=resource, health=health) for health in ("healthy", "unhealthy")
        )


async def test_rounds_inspections_repartitionings_and_devices_are_counted(env):
    figures = Figures()
    env.suffers(cards={3: {"fail": [1]}, 2: {"xid": 79}})
    async with running(env.agent(metrics=figures.metrics).run(asyncio.Event())):
        await until(lambda: figures.devices(GPU) == (3, 1), "cards to be offered")
        await env.annotate(layout("small", [0, 1, 3]))
        await until(
            lambda: figures.say("repartitions_total", outcome="applied") == 2, "two repartitioned cards"
        )
        await until(lambda: figures.say("repartitions_total", outcome="restored") == 1, "one rollback")
        await until(lambda: figures.devices(SMALL) == (14, 0), "their MIG devices")

    assert figures.say("repartitions_total", outcome="failed") == 0
    rounds, looks = figures.say("rounds_total"), figures.say("inspection_duration_seconds_count")
    assert rounds is not None
    assert looks is not None
    assert looks >= rounds > 0
    assert figures.say("heartbeat_failures_total") == 0
    assert figures.devices(GPU) == (None, None), "a stopped agent offers no devices"


async def test_a_heartbeat_that_cannot_be_written_is_counted(env):
    figures = Figures()
    async with running(env.agent(metrics=figures.metrics, namespace="nowhere").run(asyncio.Event())):
        await until(lambda: (figures.say("heartbeat_failures_total") or 0) >= 2, "heartbeats to fail")
