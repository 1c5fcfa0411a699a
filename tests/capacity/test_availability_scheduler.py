"""The index agrees with the scheduler about free resources, also while a pod is resized."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest_asyncio

from croupier.api import kinds
from croupier.capacity import availability
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, PatchType
from croupier_lab import nodes
from croupier_lab.lab import Lab
from tests import polling

NODE = "resizing"


@pytest_asyncio.fixture
async def api(lab: Lab) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(lab.kubeconfig), field_manager="test") as connected:
        yield connected


class Room:
    """One node with four CPUs; the test plays its kubelet."""

    def __init__(self, api: Client, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def open(self) -> None:
        body = nodes.manifest(nodes.SimulatedNode(NODE, "zone-a"), datetime.now(UTC))
        body["metadata"]["annotations"] = {}  # so that no simulated kubelet runs it
        for amounts in ("capacity", "allocatable"):
            body["status"][amounts] = {**body["status"][amounts], "cpu": "4"}
        await self._api.create(kinds.NODES, body)

    async def pod(self, name: str, cpu: str, **more: Any) -> None:
        """A pod that the scheduler can place only on this node."""
        main = {"name": "main", "image": "any", "resources": {"requests": {"cpu": cpu}}}
        spec = {"containers": [main], "nodeSelector": {"kubernetes.io/hostname": NODE}, **more}
        await self._api.create(
            kinds.PODS, {"metadata": {"name": name}, "spec": spec}, namespace=self._namespace
        )

    async def report(self, name: str, *, has: str, promised: str, pending: str = "") -> None:
        """The container status of a kubelet."""
        said = {"name": "main", "image": "any", "imageID": "", "ready": True, "restartCount": 0}
        said |= {"resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": promised}}
        resize = {"type": "PodResizePending", "status": "True", "reason": pending}
        status = {
            "phase": "Running",
            "containerStatuses": [said],
            "conditions": [resize] if pending else [],
        }
        await self._api.patch(
            kinds.PODS, name, {"status": status}, namespace=self._namespace, subresource="status"
        )

    async def resize(self, name: str, cpu: str) -> None:
        main = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        await self._api.patch(
            kinds.PODS,
            name,
            {"spec": {"containers": [main]}},
            namespace=self._namespace,
            subresource="resize",
            patch_type=PatchType.STRATEGIC,
        )

    async def left(self) -> str:
        return str((await availability.count_node(self._api, NODE)).three(NODE, "cpu").available)

    async def placed(self, name: str) -> None:
        async def bound() -> str:
            return (await self._api.get(kinds.PODS, name, namespace=self._namespace)).spec.node_name

        await polling.until_async(bound, f"{name} to be placed", within=60)

    async def waits(self, name: str) -> None:
        """Wait until the scheduler has refused the pod."""

        async def refused() -> bool:
            pod = await self._api.get(kinds.PODS, name, namespace=self._namespace)
            assert not pod.spec.node_name, f"{name} was placed"
            return any("Insufficient cpu" in condition.message for condition in pod.status.conditions)

        await polling.until_async(refused, f"{name} to be refused for want of CPU", within=60)


async def test_the_scheduler_counts_a_resize_as_we_do(api, namespace, clean_cluster):
    room = Room(api, namespace)
    await room.open()
    await room.pod("resized", "1", nodeName=NODE)

    # It requests one and still has three: a resize down that is not actuated yet.
    await room.report("resized", has="3", promised="1")
    assert await room.left() == "1"
    await room.pod("large", "1100m")
    await room.waits("large")
    await room.pod("first", "1")
    await room.placed("first")
    assert await room.left() == "0"

    # The resize is actuated.
    await room.report("resized", has="1", promised="1")
    await room.placed("large")
    assert await room.left() == "900m"

    # It requests more and the kubelet has not answered: that counts at once.
    await room.resize("resized", "1500m")
    assert await room.left() == "400m"
    await room.pod("second", "900m")
    await room.waits("second")

    # The resize is infeasible: it does not count any more.
    await room.report("resized", has="1", promised="1", pending="Infeasible")
    await room.placed("second")
    assert await room.left() == "0"
