"""A node on a real API server with simulated cgroups, and the agent of its CPU market.

The clock moves only between rounds; tests set the CPU demand of pods and enforce limits.
"""

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from croupier.api import kinds
from croupier.api.core_v1 import Pod
from croupier.api.mbcas import PodAllocation
from croupier.core import quantity
from croupier.core.market.model import TickResult
from croupier.core.market.policy import ChurnPolicy, MarketPolicy
from croupier.core.market.units import SECOND
from croupier.kube.client.api_client import Client, DeleteOptions, PatchType, Selection
from croupier.node.market import node_view as market_sight
from croupier.node.market.cgroup import CgroupTree
from croupier.node.market.market_agent import MarketAgent, MarketAgentOptions
from croupier.node.market.node_view import MarketStores
from tests.controllers.ledger_env import watched
from tests.polling import until

QUICK = MarketPolicy(
    elastic_peaks=2 * SECOND,
    churn=ChurnPolicy(up_after=1 * SECOND, down_after=2 * SECOND, quiet=2 * SECOND),
)


class ManualMarketClock:
    """A clock that moves only when the test or a sleep advances it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class MarketPod:
    pod: Pod
    wants: int
    """The CPU demand in millicores."""
    limit: int
    usage: int = 0
    throttled: int = 0
    periods: int = 0
    throttled_periods: int = 0

    @property
    def container(self) -> str:
        return self.pod.metadata.uid.replace("-", "") * 2

    def live(self, mount: Path) -> None:
        """Simulate one second under the limit and write the cgroup files."""
        self.usage += min(self.wants, self.limit) * 1000
        self.periods += 10
        if self.wants > self.limit:
            self.throttled += (self.wants - self.limit) * 1000
            self.throttled_periods += 10
        group = mount / f"kubepods/burstable/pod{self.pod.metadata.uid}/{self.container}"
        group.mkdir(parents=True, exist_ok=True)
        (group / "cpu.max").write_text(f"{self.limit * 100} 100000\n")
        (group / "cpu.stat").write_text(
            f"usage_usec {self.usage}\nnr_periods {self.periods}\n"
            f"nr_throttled {self.throttled_periods}\nthrottled_usec {self.throttled}\n"
        )


@dataclass
class MarketEnv:
    api: Client
    namespace: str
    node: str
    mount: Path
    sources: MarketStores
    clock: ManualMarketClock = field(default_factory=ManualMarketClock)
    guests: dict[str, MarketPod] = field(default_factory=dict)

    def agent(self, policy: MarketPolicy = QUICK, **chosen: Any) -> MarketAgent:
        """A new agent without memory."""
        api = chosen.pop("api", self.api)
        settings = MarketAgentOptions(
            self.node, self.namespace, policy, heartbeat=1.0, clock=self.clock, **chosen
        )
        return MarketAgent(self.sources, CgroupTree(self.mount), api, settings)

    async def pod(
        self,
        name: str,
        wants: int = 0,
        *,
        limit: str = "200m",
        labels: dict[str, str] | None = None,
        **annotations: str,
    ) -> Pod:
        """A running pod that takes part by default. `wants` is its CPU demand in millicores."""
        cpu = {"requests": {"cpu": "50m"}, "limits": {"cpu": limit}}
        meta = {
            "name": name,
            "labels": {"mbcas.io/managed": "true"} if labels is None else labels,
            "annotations": {f"mbcas.io/{key.replace('_', '-')}": text for key, text in annotations.items()},
        }
        main = {"name": "main", "image": "none", "resources": cpu}
        spec = {"nodeName": self.node, "terminationGracePeriodSeconds": 0, "containers": [main]}
        created = await self.api.create(
            kinds.PODS, {"metadata": meta, "spec": spec}, namespace=self.namespace
        )
        guest = self.guests[name] = MarketPod(created, wants, quantity.parse(limit).millis)
        await self.reports(name, limit)
        guest.live(self.mount)
        await until(lambda: self._seen(name), f"pod {name} to be seen running")
        return created

    def _seen(self, name: str) -> bool:
        pod = self.sources.pods.named(name, self.namespace)
        return pod is not None and pod.status.phase == "Running"

    async def reports(self, name: str, limit: str) -> None:
        """Set the status of the pod like the kubelet would."""
        guest = self.guests[name]
        guest.limit = quantity.parse(limit).millis
        cpu = {"requests": {"cpu": "50m"}, "limits": {"cpu": limit}}
        container = {
            "name": "main",
            "image": "none",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "containerID": f"containerd://{guest.container}",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "resources": cpu,
        }
        status = {"phase": "Running", "containerStatuses": [container]}
        await self.api.patch(
            kinds.PODS, name, {"status": status}, namespace=self.namespace, subresource="status"
        )

    async def enforce(self, name: str) -> None:
        """Record the original, change the limit and report it, like the controller and the kubelet do."""
        allocation = await self.api.get(kinds.POD_ALLOCATIONS, name, namespace=self.namespace)
        pod = await self.api.get(kinds.PODS, name, namespace=self.namespace)
        original = allocation.status.original_cpu_limit or pod.spec.containers[0].resources.limits["cpu"]
        desired = allocation.spec.desired_cpu_limit
        status = {"originalCPULimit": original, "podUID": pod.metadata.uid, "phase": "Pending"}
        await self.api.patch(
            kinds.POD_ALLOCATIONS, name, {"status": status}, namespace=self.namespace, subresource="status"
        )
        change = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": desired}}}]}}
        await self.api.patch(
            kinds.PODS,
            name,
            change,
            namespace=self.namespace,
            subresource="resize",
            patch_type=PatchType.STRATEGIC,
        )
        await self.reports(name, desired)
        await until(lambda: self._reported(name) == desired, f"the cache to show {desired} of {name}")
        await until(lambda: self._original(name) == original, f"the original of {name} to be seen")

    def _reported(self, name: str) -> str:
        pod = self.sources.pods.named(name, self.namespace)
        resources = pod.status.container_statuses[0].resources if pod else None
        return resources.limits["cpu"] if resources else ""

    def _original(self, name: str) -> str | None:
        allocation = self.allocation(name)
        return allocation.status.original_cpu_limit if allocation else None

    def allocation(self, name: str) -> PodAllocation | None:
        stores = (self.sources.allocations, self.sources.by_people)
        return next((item for store in stores if (item := store.named(name, self.namespace))), None)

    def desired(self, name: str) -> str:
        allocation = self.allocation(name)
        return allocation.spec.desired_cpu_limit if allocation else ""

    async def seconds(self, agent: MarketAgent, count: int = 1) -> TickResult:
        """Simulate seconds of the pods, each followed by a round of the agent and a cache sync."""
        ended: TickResult | None = None
        for _ in range(count):
            self.clock.seconds += 1
            for guest in self.guests.values():
                guest.live(self.mount)
            ended = await agent.round()
            await self.caught_up()
        assert ended is not None
        return ended

    async def caught_up(self) -> None:
        listed = await self.api.list(kinds.POD_ALLOCATIONS, Selection(self.namespace))
        current = [item for item in listed.items if item.spec.node_name in (None, self.node)]
        versions = {item.metadata.name: item.metadata.resource_version for item in current}

        def synced() -> bool:
            cached = {name: self.allocation(name) for name in versions}
            return all(
                item is not None and item.metadata.resource_version == versions[name]
                for name, item in cached.items()
            )

        await until(synced, "the cache to contain all writes")


@contextlib.asynccontextmanager
async def market_env(api: Client, namespace: str, folder: Path, cpus: int = 4) -> AsyncIterator[MarketEnv]:
    name = f"stall-{secrets.token_hex(4)}"
    await api.create(kinds.NODES, {"metadata": {"name": name}})
    amounts = {"cpu": str(cpus), "memory": "8Gi", "pods": "110"}
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    await api.patch(kinds.NODES, name, status, subresource="status")
    (folder / "kubepods").mkdir()
    (folder / "cgroup.controllers").write_text("cpu\n")
    (folder / "cpu.stat").write_text("usage_usec 0\n")
    try:
        async with (
            watched(api, kinds.NODES, Selection(fields=f"metadata.name={name}")) as nodes,
            watched(api, kinds.PODS, Selection(fields=f"spec.nodeName={name}")) as pods,
            watched(api, kinds.POD_ALLOCATIONS, market_sight.written_for(name)) as allocations,
            watched(api, kinds.POD_ALLOCATIONS, market_sight.WRITTEN_BY_HAND) as by_people,
        ):
            await until(lambda: bool(nodes.store.named(name)), "the node to be seen")
            sources = MarketStores(nodes.store, pods.store, allocations.store, by_people.store)
            yield MarketEnv(api, namespace, name, folder, sources)
    finally:
        for kind in (kinds.PODS, kinds.POD_ALLOCATIONS, kinds.LEASES):
            await api.delete_collection(kind, Selection(namespace), how=DeleteOptions(grace_seconds=0))
        await api.delete(kinds.NODES, name)
