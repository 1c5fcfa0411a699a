"""Concurrent PodResources calls while the kubelet is stopping."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from croupier.node.kubelet.grpc_calls import KubeletError
from croupier.node.kubelet.pod_resources import PodResources
from croupier.node.proto import pod_resources_pb2 as resources
from tests.install import pod_resources_server
from tests.install.pod_resources_server import FakePodResources


@dataclass
class GoesDown(FakePodResources):
    """A kubelet that fails one call and answers another one late."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    late: asyncio.Event = field(default_factory=asyncio.Event)

    async def list(self, _: Any, context: Any) -> resources.ListPodResourcesResponse:
        answer: resources.ListPodResourcesResponse = await context.abort(
            grpc.StatusCode.UNAVAILABLE, "going down"
        )
        return answer

    async def allocatable(self, _: Any, __: Any) -> resources.AllocatableResourcesResponse:
        self.asked.set()
        await self.late.wait()
        return resources.AllocatableResourcesResponse()


async def test_a_failed_call_does_not_cancel_another_call(tmp_path: Path):
    """Regression: the agent makes two calls at once and ended when one cancelled the other."""
    kubelet, socket = GoesDown(), tmp_path / "kubelet.sock"
    async with pod_resources_server.serving(socket, kubelet):
        asking = PodResources(socket)
        other = asyncio.create_task(asking.registered())
        await kubelet.asked.wait()

        with pytest.raises(KubeletError, match="going down"):
            await asking.holdings()

        kubelet.late.set()
        assert await other == {}
