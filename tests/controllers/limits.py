"""Pods with CPU limits, the controller that moves them, and a kubelet whose words the test chooses."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.core_v1 import Container, Pod
from croupier.api.mbcas import PodAllocation
from croupier.controllers.limits.metrics import PodAllocationMetrics
from croupier.controllers.limits.podallocation import (
    PodAllocationController,
    Settings,
    Sources,
)
from croupier.kube.backoff import Backoff
from croupier.kube.client import Client, Deletion, Selection
from croupier.kube.clock import SystemClock
from croupier.kube.errors import NotFound
from croupier.kube.events import Recorder
from tests.controllers.world import running, watched
from tests.kube.waiting import PATIENCE, until_async

NODE = "no-kubelet"


class Ahead(SystemClock):
    """A clock that a test can set forward."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead.total_seconds()


def container(
    name: str = "main", request: str | None = "100m", limit: str | None = "500m", **more: Any
) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if request is not None:
        resources["requests"] = {"cpu": request}
    if limit is not None:
        resources["limits"] = {"cpu": limit}
    return {"name": name, "image": "none", "resources": resources, **more}


@dataclass
class Limits:
    """`api` is a person's; the controller may be somebody else."""

    api: Client
    namespace: str
    clock: Ahead = field(default_factory=Ahead)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    retries: Backoff = field(default_factory=lambda: Backoff(first=0.3, most=2.0))

    @contextlib.asynccontextmanager
    async def moved(self, by: Client | None = None) -> AsyncIterator[PodAllocationController]:
        """By our controller, from now on."""
        async with contextlib.AsyncExitStack() as stack:
            chosen = Selection(self.namespace)
            allocations = await stack.enter_async_context(watched(self.api, kinds.POD_ALLOCATIONS, chosen))
            pods = await stack.enter_async_context(watched(self.api, kinds.PODS, chosen))
            recorder = Recorder(self.api, "podallocation-controller")
            self.registry = CollectorRegistry()
            settings = Settings(
                clock=self.clock,
                retries=self.retries,
                counts=PodAllocationMetrics(self.registry, allocations.store),
            )
            made = PodAllocationController(
                Sources(allocations, pods), by or self.api, recorder=recorder, settings=settings
            )
            await stack.enter_async_context(running(recorder.run(asyncio.Event())))
            await stack.enter_async_context(running(made.run(asyncio.Event())))
            yield made

    async def node(self, **allocatable: str) -> None:
        """Nobody serves it, but the API server knows how large it is."""
        await self.api.create(kinds.NODES, {"metadata": {"name": NODE}})
        status = {"status": {"allocatable": allocatable, "capacity": allocatable}}
        await self.api.patch(kinds.NODES, NODE, status, subresource="status")

    async def pod(
        self, name: str, *containers: dict[str, Any], spec: dict[str, Any] | None = None, **meta: Any
    ) -> Pod:
        """Bound to a node that nobody serves: it stands still until the test says what its kubelet says."""
        body = {
            "metadata": {"name": name, **meta},
            "spec": {
                "nodeName": NODE,
                "containers": list(containers or (container(),)),
                "terminationGracePeriodSeconds": 0,
                **(spec or {}),
            },
        }
        return await self.api.create(kinds.PODS, body, namespace=self.namespace)

    async def runs(
        self, name: str, *containers: dict[str, Any], spec: dict[str, Any] | None = None, **meta: Any
    ) -> Pod:
        made = await self.pod(name, *containers, spec=spec, **meta)
        await self.reports(name)
        return made

    async def get(self, name: str) -> Pod:
        return await self.api.get(kinds.PODS, name, namespace=self.namespace)

    async def reports(self, name: str, *, restarts: int = 0, phase: str = "Running", **limits: str) -> None:
        """The kubelet says that it enforces the spec (or `limits`), and that nothing is under way."""
        pod = await self.get(name)
        status = {
            "phase": phase,
            "observedGeneration": pod.metadata.generation,
            "containerStatuses": [_status(one, restarts, limits) for one in pod.spec.containers],
            "initContainerStatuses": [_status(one, restarts, limits) for one in pod.spec.init_containers],
            "conditions": None,
        }
        await self.says(name, status)

    async def condition(self, name: str, kind: str, reason: str = "", message: str = "") -> None:
        pod = await self.get(name)
        told = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "observedGeneration": pod.metadata.generation,
        }
        await self.says(name, {"conditions": [told], "observedGeneration": pod.metadata.generation})

    async def says(self, name: str, status: dict[str, Any]) -> None:
        await self.api.patch(
            kinds.PODS, name, {"status": status}, namespace=self.namespace, subresource="status"
        )

    async def wish(self, pod: str, limit: str, *, name: str = "", namespace: str = "") -> None:
        """As a person writes it; again, it changes the limit."""
        name = name or pod
        spec = {"namespace": namespace or self.namespace, "podName": pod, "desiredCPULimit": limit}
        body = {"metadata": {"name": name}, "spec": spec}
        try:
            await self.api.patch(kinds.POD_ALLOCATIONS, name, {"spec": spec}, namespace=self.namespace)
        except NotFound:
            await self.api.create(kinds.POD_ALLOCATIONS, body, namespace=self.namespace)

    async def told(self, name: str) -> PodAllocation | None:
        with contextlib.suppress(NotFound):
            return await self.api.get(kinds.POD_ALLOCATIONS, name, namespace=self.namespace)
        return None

    async def becomes(self, name: str, phase: str, says: str = "", within: float = PATIENCE) -> PodAllocation:
        """It is told of the limit that is wished for now."""
        seen: list[Any] = [None]

        async def look() -> PodAllocation | None:
            seen[0] = found = await self.told(name)
            fits = (
                found is not None
                and found.status.phase == phase
                and says in found.status.reason
                and found.status.observed_generation == found.metadata.generation
            )
            return found if fits else None

        try:
            found = await until_async(look, f"{name} to be {phase} {says}", within=within)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen[0]}") from None
        assert found is not None
        return found

    async def limits(self, name: str) -> dict[str, str]:
        pod = await self.get(name)
        return {
            one.name: one.resources.limits["cpu"]
            for one in (*pod.spec.containers, *pod.spec.init_containers)
            if "cpu" in one.resources.limits
        }

    async def has(self, name: str, **limits: str) -> None:
        async def look() -> bool:
            return await self.limits(name) == limits

        try:
            await until_async(look, f"{name} to have {limits}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {await self.told(name)}") from None

    async def applied(self, name: str, limit: str, **limits: str) -> PodAllocation:
        """The wish, the change, the report, the end."""
        await self.wish(name, limit)
        await self.has(name, **limits)
        await self.becomes(name, "Pending", "Resizing")
        await self.reports(name)
        return await self.becomes(name, "Applied")

    async def delete(self, name: str) -> None:
        await self.api.delete(kinds.PODS, name, namespace=self.namespace, how=Deletion(grace_seconds=0))

    async def events(self, name: str) -> list[str]:
        listed = await self.api.list(kinds.EVENTS, Selection(self.namespace))
        about = (one for one in listed.items if one.regarding.name == name)
        return [f"{one.type} {one.reason}: {one.note}" for one in about]

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def _status(one: Container, restarts: int, limits: dict[str, str]) -> dict[str, Any]:
    has = {**one.resources.limits, **({"cpu": limits[one.name]} if limits else {})}
    return {
        "name": one.name,
        "image": "none",
        "imageID": "",
        "ready": True,
        "restartCount": restarts,
        "state": {"running": {}},
        "resources": {"limits": has, "requests": one.resources.requests},
    }


def patch_of(limits: dict[str, str]) -> str:
    """As kubectl would send it through pods/resize."""
    each = [{"name": name, "resources": {"limits": {"cpu": cpu}}} for name, cpu in limits.items()]
    return json.dumps({"spec": {"containers": each}})
