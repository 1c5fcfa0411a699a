"""Load on a cluster: concurrent workers create, bind, resize, finish and delete pods and nodes."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from croupier.api import kinds
from croupier.kube.client.api_client import Client, DeleteOptions, PatchType
from croupier.kube.client.errors import ApiError
from croupier.kube.client.resource import Raw

NODES = tuple(f"worker-{number}" for number in range(6))
"""Nodes that are created and deleted; pods are bound to them in both cases."""
WORKERS = 24
NAMES_EACH = 5
CPU = ("100m", "0.25", "1", "1500m", "2e-1")
MEMORY = ("64Mi", "0.5Gi", "1e8", "200M", "129M")
DEVICES = ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb")


ACTIONS = {
    "absent": ("create",),
    "waiting": ("bind", "bind", "resize", "delete"),
    "bound": ("report", "report", "resize", "resize", "finish", "leave", "delete"),
    "finished": ("delete",),
    "leaving": ("report", "resize", "finish", "delete", "delete"),
}
"""The actions that are allowed in each state of a pod."""


@dataclass(slots=True)
class ClusterLoad:
    """Each worker has its own pods, so that workers do not wait for each other."""

    api: Client
    namespace: str
    seed: int
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    state: dict[str, str] = field(default_factory=dict)

    async def flow(self, steps: int) -> None:
        """Run `steps` steps of every worker, and of the worker that changes nodes."""
        async with asyncio.TaskGroup() as hands:
            for number in range(WORKERS):
                hands.create_task(self._hand(number, self._chance(f"{number} {steps}"), steps))
            hands.create_task(self._landlord(self._chance(f"nodes {steps}"), steps))

    def _chance(self, whose: str) -> random.Random:
        return random.Random(f"{self.seed} {whose}")  # noqa: S311  # not a secret: makes the run reproducible

    async def _hand(self, number: int, chance: random.Random, steps: int) -> None:
        for _ in range(steps):
            name = f"p-{number}-{chance.randrange(NAMES_EACH)}"
            await self._try(chance.choice(ACTIONS[self.state.get(name, "absent")]), name, chance)

    async def _landlord(self, chance: random.Random, steps: int) -> None:
        for _ in range(steps):
            name = chance.choice(NODES)
            there = self.state.get(name, "absent") != "absent"
            await self._try(chance.choice(("renew", "close")) if there else "open", name, chance)

    async def _try(self, act: str, name: str, chance: random.Random) -> None:
        try:
            self.state[name] = await getattr(self, f"_{act}")(name, chance) or self.state[name]
            self.done[act] += 1
        except ApiError as error:  # such as a pod that the garbage collector has already deleted
            self.refused[f"{act}: {error}"] += 1

    async def _create(self, name: str, chance: random.Random) -> str:
        spec = workload(chance)
        if chance.random() < 0.5:
            spec["nodeName"] = chance.choice(NODES)
        body = {"metadata": {"name": name}, "spec": spec}
        await self.api.create(kinds.PODS, body, namespace=self.namespace)
        return "bound" if "nodeName" in spec else "waiting"

    async def _bind(self, name: str, chance: random.Random) -> str:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": chance.choice(NODES)},
        }
        await self.api.create(kinds.PODS, body, namespace=self.namespace, name=name, subresource="binding")
        return "bound"

    async def _report(self, name: str, chance: random.Random) -> None:
        """Report like a kubelet: allocated and actual resources, and a pending or infeasible resize."""
        amounts = {"cpu": chance.choice(CPU), "memory": chance.choice(MEMORY)}
        promised = {"cpu": chance.choice(CPU), "memory": chance.choice(MEMORY)}
        said = {"name": "main", "ready": True, "restartCount": 0, "image": "any", "imageID": ""}
        said |= {"resources": {"requests": amounts}, "allocatedResources": promised}
        pending = {"type": "PodResizePending", "status": "True"}
        pending["reason"] = chance.choice(("Infeasible", "Deferred"))
        status = {
            "phase": "Running",
            "containerStatuses": [said],
            "conditions": [pending] if chance.random() < 0.5 else [],
        }
        await self._status(name, status)

    async def _resize(self, name: str, chance: random.Random) -> None:
        resources = {"requests": {"cpu": chance.choice(CPU), "memory": chance.choice(MEMORY)}}
        await self.api.patch(
            kinds.PODS,
            name,
            {"spec": {"containers": [{"name": "main", "resources": resources}]}},
            namespace=self.namespace,
            subresource="resize",
            patch_type=PatchType.STRATEGIC,
        )

    async def _finish(self, name: str, chance: random.Random) -> str:
        await self._status(name, {"phase": chance.choice(("Succeeded", "Failed"))})
        return "finished"

    async def _leave(self, name: str, chance: random.Random) -> str:
        """Delete gracefully: the pod stays, because no kubelet confirms the deletion."""
        await self.api.delete(kinds.PODS, name, namespace=self.namespace)
        return "leaving"

    async def _delete(self, name: str, chance: random.Random) -> str:
        await self.api.delete(kinds.PODS, name, namespace=self.namespace, how=DeleteOptions(grace_seconds=0))
        return "absent"

    async def _status(self, name: str, status: Raw) -> None:
        await self.api.patch(
            kinds.PODS, name, {"status": status}, namespace=self.namespace, subresource="status"
        )

    async def _open(self, name: str, chance: random.Random) -> str:
        """Create a node with its resources."""
        await self.api.create(kinds.NODES, {"metadata": {"name": name}, "status": offer(chance)})
        return "there"

    async def _renew(self, name: str, chance: random.Random) -> None:
        """Change the resources of a node."""
        await self.api.patch(kinds.NODES, name, {"status": offer(chance)}, subresource="status")

    async def _close(self, name: str, chance: random.Random) -> str:
        await self.api.delete(kinds.NODES, name)
        return "absent"


def offer(chance: random.Random) -> Raw:
    capacity = {"cpu": "64", "memory": "263921132Ki", "pods": "110", "ephemeral-storage": "1Ti"}
    capacity |= {device: str(chance.choice((0, 4, 8, 28))) for device in DEVICES}
    return {"capacity": capacity, "allocatable": {**capacity, "cpu": "63900m", "memory": "256Gi"}}


def workload(chance: random.Random) -> Raw:
    """An arbitrary pod spec: devices, init containers, sidecars, pod-level requests."""
    spec: Raw = {
        "schedulerName": "unused",
        "containers": [container("main", chance, devices=True)],
        "terminationGracePeriodSeconds": 600,
    }
    if chance.random() < 0.3:
        spec["containers"].append(container("second", chance))
    if chance.random() < 0.4:
        spec["initContainers"] = [
            container(f"before-{number}", chance)
            | ({"restartPolicy": "Always"} if chance.random() < 0.5 else {})
            for number in range(chance.randint(1, 3))
        ]
    if chance.random() < 0.2:
        spec["resources"] = {"requests": {"cpu": "8", "memory": "4Gi"}}
    return spec


def container(name: str, chance: random.Random, *, devices: bool = False) -> Raw:
    """Requests are lower than limits, so that a resize keeps the QoS class."""
    resources: Raw = {"requests": {"cpu": chance.choice(CPU), "memory": chance.choice(MEMORY)}}
    if devices and chance.random() < 0.6:
        resources["limits"] = {chance.choice(DEVICES): str(chance.randint(1, 3))}
    return {"name": name, "image": "any", "resources": resources}
