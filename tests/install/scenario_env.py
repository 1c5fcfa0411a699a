"""Environment of the installation scenario: helpers for cards, pools, pods, reservations and limits.

The scenario starts with the default values of the chart: one replica of each process, the in-memory capacity
manager, and a self-signed certificate. It is then upgraded to high availability, with settings from a
ModuleConfig and certificates from cert-manager. Independent steps run concurrently.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from croupier.api import kinds
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.client.errors import ApiError, NotFound
from croupier.kube.client.resource import Raw
from tests import polling
from tests.install import pod_resources_server
from tests.install.chart_env import NODE, ChartEnv
from tests.install.pod_resources_server import FakePodResources
from tests.node.market_env import MarketEnv, market_env

TIMEOUT = 90.0
AT_ONCE = DeleteOptions(grace_seconds=0)


@dataclass
class ScenarioEnv:
    chart: ChartEnv
    api: Client
    market: MarketEnv
    pod_resources: FakePodResources
    began: float = field(default_factory=time.monotonic)

    async def until(self, condition: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Poll ten times per second until the condition is truthy; returns its value."""

        async def look() -> Any:
            with contextlib.suppress(NotFound):
                return await condition()

        since = time.monotonic()
        value = await polling.until_async(look, what, TIMEOUT, every=0.1)
        self.note(f"{time.monotonic() - since:5.1f} for {what}")
        return value

    def note(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s, {what}", flush=True)  # noqa: T201  # shown with -s

    async def cards(self, **wanted: Any) -> list[Any]:
        """Cards with these values in their status."""
        devices = (await self.api.list(kinds.GPU_DEVICES)).items
        return [
            device
            for device in devices
            if all(getattr(device.status, key) == value for key, value in wanted.items())
        ]

    async def pool(self, **allocation: Any) -> None:
        """Apply a pool with cards 0 and 1 of the node."""
        spec = {
            "allocation": allocation,
            "deviceSelector": {"include": {"indexes": ["0-1"]}},
            "deviceAssignment": {"requireAnnotation": False},
        }
        body = {"metadata": {"name": "team"}, "spec": spec}
        await self.api.apply(kinds.GPU_POOLS, body, force=True, field_manager="a-person")

    async def capacity(self, total: int, free: int | None = None) -> None:
        async def enough() -> bool:
            now = (await self.api.get(kinds.GPU_POOLS, "team")).status.capacity
            return now is not None and (now.total, now.available) == (total, total if free is None else free)

        await self.until(enough, f"{total} units of the pool")

    async def kubelet_offers(self, amounts: dict[str, int]) -> None:
        """Set the allocatable devices of the node."""
        now = {name: str(count) for name, count in amounts.items()}
        await self.api.patch(
            kinds.NODES, NODE, {"status": {"capacity": now, "allocatable": now}}, subresource="status"
        )

    async def pod(self, name: str, resource: str, **spec: Any) -> None:
        body = pod_manifest(name, resource, **spec)

        async def admitted() -> bool:
            """Retry while the API server does not have the CA bundle of the webhook yet."""
            try:
                await self.api.create(kinds.PODS, body, namespace="default")
            except ApiError as error:
                if "webhook" in str(error) or "mark" in str(error):
                    return False
                raise
            return True

        await self.until(admitted, f"pod {name} to be admitted")

    async def runs(self, name: str) -> None:
        async def bound() -> bool:
            return bool((await self.api.get(kinds.PODS, name, namespace="default")).spec.node_name)

        await self.until(bound, f"pod {name} to be bound")

    async def waits(self, name: str) -> None:
        async def refused() -> bool:
            conditions = (await self.api.get(kinds.PODS, name, namespace="default")).status.conditions
            return any(item.type == "PodScheduled" and item.status == "False" for item in conditions)

        await self.until(refused, f"pod {name} to be unschedulable")

    async def promised(self, name: str) -> list[str]:
        """The cards in the allocation of a pod."""
        pod = await self.api.get(kinds.PODS, name, namespace="default")
        return [entry["card"] for entry in json.loads(pod.metadata.annotations["gpu.mps.io/allocation"])]

    async def ends(self, *names: str) -> None:
        for name in names:
            await self.api.delete(kinds.PODS, name, namespace="default", how=AT_ONCE)

    async def reserves(self, name: str, cards: int) -> None:
        spec = {"podKey": f"default/{name}", "nodeName": NODE, "numCards": cards, "percentPerCard": 100}
        body = {"metadata": {"name": name}, "spec": spec}
        await self.api.create(kinds.RESERVATIONS, body, namespace="default")

    async def decided(self, name: str) -> str:
        """Wait for the decision of a Reservation: Reserved or Failed."""

        async def phase() -> str:
            current = await self.api.get(kinds.RESERVATIONS, name, namespace="default")
            return current.status.phase if current.status.phase in ("Reserved", "Failed") else ""

        decision: str = await self.until(phase, f"Reservation {name} to be decided")
        return decision


def pod_manifest(name: str, resource: str, **spec: Any) -> Raw:
    """A pod that requests one unit of `resource`."""
    main = {"name": "main", "image": "any", "resources": {"limits": {resource: "1"}}}
    placed = {"schedulerName": "croupier-scheduler", "containers": [main]}
    return {"metadata": {"name": name}, "spec": {**placed, **spec}}


@contextlib.asynccontextmanager
async def scenario_env(chart: ChartEnv) -> AsyncIterator[ScenarioEnv]:
    async with api_client.connect(config.load(chart.lab.kubeconfig), field_manager="a-person") as api:
        mount = chart.folder / "cgroup"
        mount.mkdir()
        await api.create(kinds.NAMESPACES, {"metadata": {"name": "offices"}})
        async with (
            market_env(api, "offices", mount) as market,
            pod_resources_server.serving(chart.folder / "kubelet/pod-resources/kubelet.sock") as handing,
        ):
            living = asyncio.create_task(_simulate_kubelet(market))
            try:
                yield ScenarioEnv(chart, api, market, handing)
            finally:
                living.cancel()


async def _simulate_kubelet(market: MarketEnv) -> None:
    """Simulate CPU usage and a kubelet that applies resizes, for pods with fake cgroups."""
    while True:
        for name, guest in list(market.guests.items()):
            pod = market.sources.pods.named(name, market.namespace)
            if pod is not None and (wanted := pod.spec.containers[0].resources.limits["cpu"]):
                with contextlib.suppress(ApiError):
                    await market.reports(name, wanted)
            guest.live(market.mount)
        await asyncio.sleep(0.5)
