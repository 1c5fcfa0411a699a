"""Pods with CPU limits, the PodAllocation controller, and a kubelet whose reports the test writes."""

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
from croupier.controllers.limits import podallocation
from croupier.controllers.limits.metrics import PodAllocationMetrics
from croupier.controllers.limits.podallocation import (
    NAME,
    PodAllocationController,
    PodAllocationInformers,
    PodAllocationOptions,
)
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import ObjectChange, Store
from croupier.kube.client.api_client import Client, DeleteOptions, Selection
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.client.identity import Key
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.metrics import ControllerMetrics, ReconcileMetrics
from croupier.kube.controller.reconcile import Result
from tests.controllers.ledger_env import running, watched
from tests.polling import TIMEOUT, until_async

NODE = "no-kubelet"


class AdvancedClock(SystemClock):
    """A clock that a test can advance."""

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
class LimitsEnv:
    """`api` is the client of a user; the controller may have its own."""

    api: Client
    namespace: str
    clock: AdvancedClock = field(default_factory=AdvancedClock)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    retries: Backoff = field(default_factory=lambda: Backoff(first=0.3, most=2.0))
    watched: Selection | None = None
    """What the controller serves; its namespace if unset."""
    max_per_namespace: int = podallocation.MAX_PER_NAMESPACE
    followed: list[tuple[Informer[Any], Selection]] = field(default_factory=list)
    """The caches of the controller."""
    order: list[Key] = field(default_factory=list)
    """The keys in the order in which the controller's workers reconcile them."""
    arrived: dict[Key, int] = field(default_factory=dict)
    """How many reconciles had begun when the controller's cache first showed a PodAllocation."""

    @contextlib.asynccontextmanager
    async def moved(self, by: Client | None = None) -> AsyncIterator[PodAllocationController]:
        """Run the controller."""
        async with contextlib.AsyncExitStack() as stack:
            chosen = self.watched or Selection(self.namespace)
            allocations = await stack.enter_async_context(watched(self.api, kinds.POD_ALLOCATIONS, chosen))
            pods = await stack.enter_async_context(watched(self.api, kinds.PODS, chosen))
            self.followed = [(allocations, chosen), (pods, chosen)]
            recorder = EventRecorder(self.api, "podallocation-controller")
            self.registry = CollectorRegistry()
            settings = PodAllocationOptions(
                clock=self.clock,
                max_per_namespace=self.max_per_namespace,
                retries=self.retries,
                resize_metrics=PodAllocationMetrics(self.registry, allocations.store),
                metrics=ControllerMetrics(NAME, ReconcileMetrics(self.registry)),
            )
            made = PodAllocationController(
                PodAllocationInformers(allocations, pods),
                by or self.api,
                recorder=recorder,
                settings=settings,
            )
            self._observe(made, allocations.store)
            await stack.enter_async_context(running(recorder.run(asyncio.Event())))
            await stack.enter_async_context(running(made.run(asyncio.Event())))
            yield made

    def _observe(self, made: PodAllocationController, allocations: Store[PodAllocation]) -> None:
        reconcile = made.controller.reconcile

        async def recorded(key: Key) -> Result:
            self.order.append(key)
            return await reconcile(key)

        def shown(change: ObjectChange[PodAllocation]) -> None:
            self.arrived.setdefault(change.key, len(self.order))

        made.controller.reconcile = recorded
        allocations.subscribe(shown)

    async def node(self, **allocatable: str) -> None:
        """A node without a kubelet, whose capacity is in the API server."""
        await self.api.create(kinds.NODES, {"metadata": {"name": NODE}})
        status = {"status": {"allocatable": allocatable, "capacity": allocatable}}
        await self.api.patch(kinds.NODES, NODE, status, subresource="status")

    async def pod(
        self, name: str, *containers: dict[str, Any], spec: dict[str, Any] | None = None, **meta: Any
    ) -> Pod:
        """A pod bound to a node without a kubelet; the test writes its status."""
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

    async def reports(
        self, name: str, *, restarts: int = 0, phase: str = "Running", behind: int = 0, **limits: str
    ) -> None:
        """The kubelet reports that it enforces the spec (or `limits`), without a resize condition.

        `behind`: by how many generations the spec that it has observed is too old.
        """
        pod = await self.get(name)
        status = {
            "phase": phase,
            "observedGeneration": pod.metadata.generation - behind,
            "containerStatuses": [_status(container, restarts, limits) for container in pod.spec.containers],
            "initContainerStatuses": [
                _status(container, restarts, limits) for container in pod.spec.init_containers
            ],
            "conditions": None,
        }
        await self.says(name, status)

    async def condition(self, name: str, kind: str, reason: str = "", message: str = "") -> None:
        pod = await self.get(name)
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "observedGeneration": pod.metadata.generation,
        }
        await self.says(name, {"conditions": [condition], "observedGeneration": pod.metadata.generation})

    async def says(self, name: str, status: dict[str, Any]) -> None:
        await self.api.patch(
            kinds.PODS, name, {"status": status}, namespace=self.namespace, subresource="status"
        )

    async def set_limit(self, pod: str, limit: str, *, name: str = "", namespace: str = "") -> None:
        """Create or update the PodAllocation of a user."""
        name = name or pod
        spec = {"namespace": namespace or self.namespace, "podName": pod, "desiredCPULimit": limit}
        body = {"metadata": {"name": name}, "spec": spec}
        try:
            await self.api.patch(kinds.POD_ALLOCATIONS, name, {"spec": spec}, namespace=self.namespace)
        except NotFound:
            await self.api.create(kinds.POD_ALLOCATIONS, body, namespace=self.namespace)

    async def get_allocation(self, name: str) -> PodAllocation | None:
        with contextlib.suppress(NotFound):
            return await self.api.get(kinds.POD_ALLOCATIONS, name, namespace=self.namespace)
        return None

    async def becomes(self, name: str, phase: str, says: str = "", within: float = TIMEOUT) -> PodAllocation:
        """Wait for this phase with the current generation observed."""
        seen: list[Any] = [None]

        async def look() -> PodAllocation | None:
            seen[0] = found = await self.get_allocation(name)
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
            container.name: container.resources.limits["cpu"]
            for container in (*pod.spec.containers, *pod.spec.init_containers)
            if "cpu" in container.resources.limits
        }

    async def has(self, name: str, **limits: str) -> None:
        async def look() -> bool:
            return await self.limits(name) == limits

        try:
            await until_async(look, f"{name} to have {limits}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {await self.get_allocation(name)}") from None

    async def applied(self, name: str, limit: str, **limits: str) -> PodAllocation:
        """Set the limit, wait for the change, report it, and wait for Applied."""
        await self.set_limit(name, limit)
        await self.has(name, **limits)
        await self.becomes(name, "Pending", "Resizing")
        await self.reports(name)
        return await self.becomes(name, "Applied")

    async def delete(self, name: str) -> None:
        await self.api.delete(kinds.PODS, name, namespace=self.namespace, how=DeleteOptions(grace_seconds=0))

    async def events(self, name: str) -> list[str]:
        listed = await self.api.list(kinds.EVENTS, Selection(self.namespace))
        about = (event for event in listed.items if event.regarding.name == name)
        return [f"{event.type} {event.reason}: {event.note}" for event in about]

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def _status(container: Container, restarts: int, limits: dict[str, str]) -> dict[str, Any]:
    has = {**container.resources.limits, **({"cpu": limits[container.name]} if limits else {})}
    return {
        "name": container.name,
        "image": "none",
        "imageID": "",
        "ready": True,
        "restartCount": restarts,
        "state": {"running": {}},
        "resources": {"limits": has, "requests": container.resources.requests},
    }


def patch_of(limits: dict[str, str]) -> str:
    """A patch for pods/resize, as kubectl sends it."""
    each = [{"name": name, "resources": {"limits": {"cpu": cpu}}} for name, cpu in limits.items()]
    return json.dumps({"spec": {"containers": each}})
