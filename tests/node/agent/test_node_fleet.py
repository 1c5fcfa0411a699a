"""One process that runs the agents of many simulated nodes."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import yaml

from croupier.api import kinds
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import NotFound
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.cli.command import CROUPIER
from tests.controllers.ledger_env import watched
from tests.node.agent_env import layout
from tests.polling import until
from tests.wiring import first_lines

GPU = "nvidia.com/gpu"
SMALL = "nvidia.com/mig-1g.10gb"
WITHIN = 60.0


@pytest.fixture(scope="module")
def ours(cluster: Cluster, crds: Any) -> Iterator[str]:
    name = shared_cluster.create_namespace(cluster, "fleet")
    yield name
    shared_cluster.delete_namespace(cluster, name)


@dataclass
class FleetEnv:
    api: Client
    stem: str
    nodes: Store[Any]
    leases: Store[Any]

    async def node(self, number: int, product: str, count: int) -> str:
        name = f"{self.stem}-{number}"
        labels = {"fleet": self.stem, f"{GPU}.product": product, f"{GPU}.count": str(count)}
        await self.api.create(kinds.NODES, {"metadata": {"name": name, "labels": labels}})
        return name

    def offers(self, name: str) -> dict[str, str]:
        node = self.nodes.named(name)
        allocatable = node.status.allocatable if node is not None else {}
        return {key: count for key, count in allocatable.items() if key in (GPU, SMALL)}

    def watched(self) -> set[str]:
        """The nodes with an agent."""
        return {lease.spec.holder_identity for lease in self.leases}


@pytest_asyncio.fixture
async def env(cluster: Cluster, ours: str) -> AsyncIterator[FleetEnv]:
    stem = f"ship-{secrets.token_hex(3)}"
    async with (
        api_client.connect(config.load(cluster.kubeconfig)) as api,
        watched(api, kinds.NODES, Selection(labels=f"fleet={stem}")) as nodes,
        watched(api, kinds.LEASES, Selection(ours)) as leases,
    ):
        yield FleetEnv(api, stem, nodes.store, leases.store)
        for node in list(nodes.store):
            with contextlib.suppress(NotFound):
                await api.delete(kinds.NODES, node.metadata.name)


async def test_every_node_has_the_cards_of_its_labels_and_its_own_agent(env, cluster, ours, tmp_path):
    first = await env.node(1, "Croupier-Simulated-70GB", 4)
    second = await env.node(2, "NVIDIA-H100-80GB-HBM3", 8)
    faults = tmp_path / "faults.yaml"
    options = {
        "fleet": f"fleet={env.stem}",
        "cards": "simulated=labels",
        "faults": faults,
        "every": 0.5,
        "health": "127.0.0.1:0",
        "lease-namespace": ours,
        "kubeconfig": cluster.kubeconfig,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    log = tmp_path / "fleet.log"
    with log.open("w") as out:
        fleet = await asyncio.create_subprocess_exec(*CROUPIER, "node", *words, stdout=out, stderr=out)
    try:
        await until(lambda: env.offers(first) == {GPU: "4"}, "four cards", WITHIN)
        await until(lambda: env.offers(second) == {GPU: "8"}, "eight cards", WITHIN)

        patch = {"metadata": {"annotations": {"run.ai/mig.config": layout("small")}}}
        await env.api.patch(kinds.NODES, first, patch)
        await until(lambda: env.offers(first) == {GPU: "0", SMALL: "28"}, "a repartitioning", WITHIN)

        faults.write_text(yaml.safe_dump({"nodes": {second: {"cards": {3: {"ecc": 1}}}}}))
        await until(lambda: env.offers(second) == {GPU: "7"}, "one card fewer", WITHIN)

        late = await env.node(3, "Tesla-T4", 2)
        await until(lambda: env.offers(late) == {GPU: "2"}, "a node that came later", WITHIN)
        await env.api.delete(kinds.NODES, late)
        await until(lambda: env.watched() == {first, second}, "its Lease to go with it", WITHIN)
        assert env.offers(first) == {GPU: "0", SMALL: "28"}
    finally:
        fleet.terminate()
        code = await fleet.wait()
    assert code == 0, log.read_text()
    first_lines.check(log.read_text(), "node")
