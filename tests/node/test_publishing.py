"""What an agent writes on its Node, while Nodes go and come again."""

from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.api.core_v1 import Node
from croupier.core.nodes.state import Standing
from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.kube.errors import Conflict, Invalid, NotFound
from croupier.node.agent.publishing import Publisher, Settings

NAME = "comes-and-goes"
LABELS = {"nvidia.com/gpu.count": "2"}
WELL = (Standing("GPUDriverReady", "True", "Ready", "the driver answers"),)


@dataclass
class Seen:
    """The Node as the agent's watch shows it, which may be late."""

    api: Client
    node: Node

    async def refresh(self) -> None:
        self.node = await self.api.get(kinds.NODES, NAME)

    async def comes_again(self) -> None:
        await self.api.delete(kinds.NODES, NAME)
        await self.api.create(kinds.NODES, {"metadata": {"name": NAME}})


@pytest_asyncio.fixture
async def seen(cluster: Any, clean_cluster: None) -> Any:
    async with client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        yield Seen(api, await api.create(kinds.NODES, {"metadata": {"name": NAME}}))


@pytest.fixture
def publisher(seen: Seen, namespace: str) -> Publisher:
    return Publisher(seen.api, Settings(NAME, namespace), lambda: seen.node)


async def test_a_node_that_is_gone_is_not_made_again(seen: Seen, publisher: Publisher):
    await seen.api.delete(kinds.NODES, NAME)

    with pytest.raises(Conflict):
        await publisher.mark(LABELS)
    with pytest.raises((Conflict, NotFound)):
        await publisher.state(WELL)

    with pytest.raises(NotFound):
        await seen.api.get(kinds.NODES, NAME)


async def test_one_that_comes_again_is_told_everything_anew(seen: Seen, publisher: Publisher):
    await publisher.mark(LABELS)
    await publisher.state(WELL)
    await seen.comes_again()
    await seen.refresh()

    await publisher.mark(LABELS)
    await publisher.state(WELL)

    await seen.refresh()
    assert seen.node.metadata.labels.items() >= LABELS.items()
    assert [one.status for one in seen.node.status.conditions if one.type == WELL[0].type] == ["True"]


async def test_its_namesake_gets_nothing_by_mistake(seen: Seen, publisher: Publisher):
    await seen.comes_again()

    with pytest.raises(Invalid):
        await publisher.mark(LABELS)

    await seen.refresh()
    assert not seen.node.metadata.labels.keys() & LABELS.keys()
