"""Device plugins on a real kubelet, and pods that request their devices."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from croupier.api import convert_pod, kinds
from croupier.api.core_v1 import Node, Pod
from croupier.api.mps import allocation
from croupier.core import quantity
from croupier.core.model.gpu_card import CardHealth, GpuCard
from croupier.core.nodes.kubelet_assignments import BoundPod
from croupier.core.nodes.plugin_devices import DeviceUnit, NodeCard, PoolMembership, ServedResources
from croupier.kube.cache.store import Store
from croupier.kube.client.api_client import Client
from croupier.node.cards.card_driver import ContainerEdits
from croupier.node.kubelet.allocator import Allocator, AllocatorInputs
from croupier.node.kubelet.checkpoint import KubeletCheckpoint
from croupier.node.kubelet.plugin_manager import PluginManager, PluginOptions
from croupier.node.kubelet.pod_resources import PodResources
from croupier_lab import image, realnode
from croupier_lab.lab import Lab
from tests.polling import until

TIMEOUT = 60.0


_UNIQUE = count(1)


def unhealthy(card: NodeCard) -> NodeCard:
    return replace(card, gpu=replace(card.gpu, health=CardHealth(healthy=False)))


def cards(node: str, many: int, pool: PoolMembership | None = None) -> tuple[NodeCard, ...]:
    """Cards of 80000 MiB with unique names: pods of the previous test may still be terminating."""
    return tuple(
        NodeCard(
            f"{node}-{next(_UNIQUE):04}-10-00-0",
            GpuCard(n, uuid=f"GPU-{n}", memory_mib=80000),
            pool=pool,
        )
        for n in range(many)
    )


def pod(
    name: str, asks: dict[str, int], *, promised: Sequence[dict[str, Any]] = (), **spec: Any
) -> dict[str, Any]:
    """A pod that prints its environment and keeps running. `promised` is its allocation."""
    container = {
        "name": "main",
        "image": image.BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "env; sleep 3600"],
        "resources": {"limits": {resource: str(count) for resource, count in asks.items()}},
    }
    annotations = {allocation.ALLOCATION: json.dumps(list(promised))} if promised else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **spec,
        },
    }


def edits_for(units: Sequence[DeviceUnit]) -> ContainerEdits:
    """Container edits that show the devices in the environment."""
    return ContainerEdits(env={"SEEN": ",".join(f"{unit.card}/{unit.part}" for unit in units)})


@dataclass
class PluginEnv:
    lab: Lab
    api: Client
    node: str
    namespace: str
    pods: Store[Pod]
    nodes: Store[Node]

    @property
    def directory(self) -> Path:
        return realnode.paths_of(self.lab).plugins / "device-plugins"

    def bound(self) -> list[BoundPod]:
        pods = (pod for pod in self.pods if pod.spec.node_name == self.node)
        return [view for pod in pods if (view := convert_pod.bound(pod)) is not None]

    @contextlib.asynccontextmanager
    async def plugins(self, *, name: str = "", **settings: Any) -> AsyncIterator[PluginManager]:
        """Running plugins. `name` is the node name in the ids of the devices."""
        socket = realnode.paths_of(self.lab).plugins / "pod-resources" / "kubelet.sock"
        resources = PodResources(socket)
        checkpoint = KubeletCheckpoint(resources, self.directory, self.bound)
        allocator = Allocator(checkpoint, AllocatorInputs(self.bound, edits_for))
        manager = PluginManager(
            PluginOptions(name or self.node, self.directory, **settings), allocator, resources
        )
        stop = asyncio.Event()
        running = asyncio.ensure_future(manager.run(stop))
        try:
            yield manager
        finally:
            stop.set()
            await running

    async def serves(self, plugins: PluginManager, offer: ServedResources, expected: dict[str, int]) -> None:
        """Serve the offer and wait until the node's status has it."""
        await plugins.serve(offer)
        await self.served(plugins, *expected)
        await self.shows(expected)

    async def served(self, plugins: PluginManager, *resources: str) -> None:
        await until(lambda: plugins.status.serves >= set(resources), "registered resources", TIMEOUT)

    def count(self, resource: str, of: str = "allocatable") -> int | None:
        """The amount of the resource in the node's status. None if it is missing."""
        node = self.nodes.named(self.node)
        text = getattr(node.status, of).get(resource) if node is not None else None
        return quantity.parse(text).whole if text is not None else None

    async def shows(self, expected: dict[str, int], of: str = "allocatable") -> None:
        await until(
            lambda: {name: self.count(name, of) for name in expected} == expected,
            f"{expected} in {of}",
            TIMEOUT,
        )

    async def registered(self, resource: str) -> tuple[str, ...]:
        """The devices that the kubelet knows. The node's status follows seconds later."""
        resources = PodResources(realnode.paths_of(self.lab).plugins / "pod-resources" / "kubelet.sock")
        return (await resources.registered()).get(resource, ())

    async def opens(self, *manifests: dict[str, Any]) -> None:
        """Create pods that are already bound, so that only the kubelet decides."""
        for manifest in manifests:
            manifest["spec"]["nodeName"] = self.node
            await self.api.create(kinds.PODS, manifest, namespace=self.namespace)

    def phase(self, name: str) -> str:
        pod = self.pods.named(name, self.namespace)
        return pod.status.phase if pod is not None else ""

    async def runs(self, *names: str) -> None:
        await until(lambda: all(self.phase(name) == "Running" for name in names), f"{names} to run", TIMEOUT)

    async def fails(self, name: str) -> str:
        """Wait until the pod has failed and return the reason."""
        await until(lambda: self.phase(name) == "Failed", f"{name} to fail", TIMEOUT)
        pod = self.pods.named(name, self.namespace)
        assert pod is not None
        return f"{pod.status.reason}: {pod.status.message}"

    async def environment(self, name: str) -> dict[str, str]:
        log = ""

        def complete() -> bool:
            nonlocal log
            log = self.lab.kubectl("logs", name, "-n", self.namespace, check=False).stdout
            return "PATH=" in log

        await until(complete, f"the environment of {name}", TIMEOUT)
        return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)

    async def has(self, plugins: PluginManager, name: str) -> list[str]:
        """The devices that the kubelet assigned to a pod."""
        holdings = await plugins.holdings()
        own = (holding for holding in holdings if holding.pod == f"{self.namespace}/{name}")
        return sorted(device for holding in own for device in holding.ids)
