"""The agent's writes to its Node, while the Node is deleted and recreated."""

from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.api.core_v1 import Node
from croupier.core.model.condition import DesiredCondition
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import Conflict, Invalid, NotFound
from croupier.node.agent.publishing import Publisher, PublisherOptions

NAME = "comes-and-goes"
LABELS = {"nvidia.com/gpu.count": "2"}
WELL = (DesiredCondition("GPUDriverReady", "True", "Ready", "the driver answers"),)


@dataclass
class Seen:
    """The Node in the agent's cache, which may be outdated."""

    api: Client
    node: Node

    async def refresh(self) -> None:
        self.node = await self.api.get(kinds.NODES, NAME)

    async def comes_again(self) -> None:
        await self.api.delete(kinds.NODES, NAME)
        await self.api.create(kinds.NODES, {"metadata": {"name": NAME}})


@pytest_asyncio.fixture
async def seen(cluster: Any, clean_cluster: None) -> Any:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        yield Seen(api, await api.create(kinds.NODES, {"metadata": {"name": NAME}}))


@pytest.fixture
def publisher(seen: Seen, namespace: str) -> Publisher:
    return Publisher(seen.api, PublisherOptions(NAME, namespace), lambda: seen.node)


async def test_a_deleted_node_is_not_created_again(seen: Seen, publisher: Publisher):
    await seen.api.delete(kinds.NODES, NAME)

    with pytest.raises(Conflict):
        await publisher.apply_labels(LABELS)
    with pytest.raises((Conflict, NotFound)):
        await publisher.apply_conditions(WELL)

    with pytest.raises(NotFound):
        await seen.api.get(kinds.NODES, NAME)


async def test_a_recreated_node_gets_all_values_again(seen: Seen, publisher: Publisher):
    await publisher.apply_labels(LABELS)
    await publisher.apply_conditions(WELL)
    await seen.comes_again()
    await seen.refresh()

    await publisher.apply_labels(LABELS)
    await publisher.apply_conditions(WELL)

    await seen.refresh()
    assert seen.node.metadata.labels.items() >= LABELS.items()
    conditions = seen.node.status.conditions
    assert [condition.status for condition in conditions if condition.type == WELL[0].type] == ["True"]


async def test_a_recreated_node_that_is_not_cached_yet_is_not_changed(seen: Seen, publisher: Publisher):
    await seen.comes_again()

    with pytest.raises(Invalid):
        await publisher.apply_labels(LABELS)

    await seen.refresh()
    assert not seen.node.metadata.labels.keys() & LABELS.keys()
