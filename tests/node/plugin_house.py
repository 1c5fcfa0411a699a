"""Device plugins at work on the kubelet of this machine, and pods that ask for what they serve."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from croupier.api import kinds
from croupier.api.core_v1 import Node, Pod
from croupier.api.mps import allocation
from croupier.core import quantity
from croupier.core.nodes.devices import Membership, NodeCard, Offer, Unit
from croupier.core.nodes.handed import BoundPod
from croupier.kube.client import Client
from croupier.kube.store import Store
from croupier.lab import image, realnode
from croupier.lab.lab import Lab
from croupier.node.cards.cards import Edits
from croupier.node.kubelet import plugin_pods
from croupier.node.kubelet.notes import KubeletNotes
from croupier.node.kubelet.plugin import Plugins, Settings
from croupier.node.kubelet.plugin_desk import Desk, Equipment
from croupier.node.kubelet.pod_resources import PodResources
from tests.kube.waiting import until

WITHIN = 60.0


_NEVER_SEEN = count(1)


def cards(node: str, many: int, pool: Membership | None = None) -> tuple[NodeCard, ...]:
    """So many cards of 80000 MiB that no test had before: pods of the last one may still be ending."""
    return tuple(
        NodeCard(f"{node}-{next(_NEVER_SEEN):04}-10-00-0", n, uuid=f"GPU-{n}", memory_mib=80000, pool=pool)
        for n in range(many)
    )


def pod(
    name: str, asks: dict[str, int], *, promised: Sequence[dict[str, Any]] = (), **spec: Any
) -> dict[str, Any]:
    """Prints its environment and stays. `promised` is its allocation, as the scheduler would write it."""
    container = {
        "name": "main",
        "image": image.BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "env; sleep 3600"],
        "resources": {"limits": {resource: str(count) for resource, count in asks.items()}},
    }
    notes = {allocation.ALLOCATION: json.dumps(list(promised))} if promised else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes},
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **spec,
        },
    }


def seen_by(units: Sequence[Unit]) -> Edits:
    """What a simulated card would need."""
    return Edits(env={"SEEN": ",".join(f"{one.card}/{one.part}" for one in units)})


@dataclass
class House:
    lab: Lab
    api: Client
    node: str
    namespace: str
    pods: Store[Pod]
    nodes: Store[Node]

    @property
    def directory(self) -> Path:
        return realnode.ground(self.lab).plugins / "device-plugins"

    def bound(self) -> list[BoundPod]:
        mine = (one for one in self.pods if one.spec.node_name == self.node)
        return [found for one in mine if (found := plugin_pods.bound(one)) is not None]

    @contextlib.asynccontextmanager
    async def plugins(self, *, name: str = "", **settings: Any) -> AsyncIterator[Plugins]:
        """A running set of them; `name` is that of the node, after which our devices are named."""
        socket = realnode.ground(self.lab).plugins / "pod-resources" / "kubelet.sock"
        resources = PodResources(socket)
        account = KubeletNotes(resources, self.directory, self.bound)
        desk = Desk(account, Equipment(self.bound, seen_by))
        made = Plugins(Settings(name or self.node, self.directory, **settings), desk, resources)
        stop = asyncio.Event()
        running = asyncio.ensure_future(made.run(stop))
        try:
            yield made
        finally:
            stop.set()
            await running

    async def serves(self, plugins: Plugins, offer: Offer, expected: dict[str, int]) -> None:
        """Until the kubelet listens and the node says so."""
        await plugins.serve(offer)
        await self.served(plugins, *expected)
        await self.shows(expected)

    async def served(self, plugins: Plugins, *resources: str) -> None:
        await until(lambda: plugins.standing.serves >= set(resources), "registered resources", WITHIN)

    def count(self, resource: str, of: str = "allocatable") -> int | None:
        """As the node says it; None if it does not."""
        node = self.nodes.named(self.node)
        text = getattr(node.status, of).get(resource) if node is not None else None
        return quantity.parse(text).whole if text is not None else None

    async def shows(self, expected: dict[str, int], of: str = "allocatable") -> None:
        await until(
            lambda: {name: self.count(name, of) for name in expected} == expected,
            f"{expected} in {of}",
            WITHIN,
        )

    async def registered(self, resource: str) -> tuple[str, ...]:
        """The devices the kubelet would hand out now; the node says it seconds later."""
        resources = PodResources(realnode.ground(self.lab).plugins / "pod-resources" / "kubelet.sock")
        return (await resources.registered()).get(resource, ())

    async def opens(self, *manifests: dict[str, Any]) -> None:
        """The pods are bound from the start, so that only the kubelet decides."""
        for one in manifests:
            one["spec"]["nodeName"] = self.node
            await self.api.create(kinds.PODS, one, namespace=self.namespace)

    def phase(self, name: str) -> str:
        found = self.pods.named(name, self.namespace)
        return found.status.phase if found is not None else ""

    async def runs(self, *names: str) -> None:
        await until(lambda: all(self.phase(name) == "Running" for name in names), f"{names} to run", WITHIN)

    async def fails(self, name: str) -> str:
        """Why."""
        await until(lambda: self.phase(name) == "Failed", f"{name} to fail", WITHIN)
        found = self.pods.named(name, self.namespace)
        assert found is not None
        return f"{found.status.reason}: {found.status.message}"

    async def environment(self, name: str) -> dict[str, str]:
        said = ""

        def complete() -> bool:
            nonlocal said
            said = self.lab.kubectl("logs", name, "-n", self.namespace, check=False).stdout
            return "PATH=" in said

        await until(complete, f"the environment of {name}", WITHIN)
        return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)

    async def has(self, plugins: Plugins, name: str) -> list[str]:
        """The devices of a pod, by the kubelet."""
        holdings = await plugins.holdings()
        mine = (one for one in holdings if one.pod == f"{self.namespace}/{name}")
        return sorted(device for one in mine for device in one.ids)
