"""A day in an installation: everything that can happen to cards, pools, reservations and limits, once.

It begins as the chart comes: one of each process, the ledger in the extender's memory, our own
certificate. At noon it becomes highly available, with settings from a ModuleConfig and certificates by
cert-manager. What does not need the other happens at the same time.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from croupier.api import kinds
from croupier.kube import client, config
from croupier.kube.client import Client, Deletion
from croupier.kube.errors import ApiError, NotFound
from croupier.kube.resource import Raw
from tests.install import hands
from tests.install.hands import Hands
from tests.install.town import NODE, Town
from tests.node.stall import Stall, stall

PATIENCE = 90.0
AT_ONCE = Deletion(grace_seconds=0)


@dataclass
class Day:
    town: Town
    api: Client
    floor: Stall
    hands: Hands
    began: float = field(default_factory=time.monotonic)

    async def until(self, look: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Looks ten times a second: more would keep the processes from what is waited for."""
        since = time.monotonic()
        while time.monotonic() < since + PATIENCE:
            with contextlib.suppress(NotFound):
                if found := await look():
                    self.note(f"{time.monotonic() - since:5.1f} for {what}")
                    return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"waited {PATIENCE:g} s for {what}")

    def note(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s, {what}", flush=True)  # noqa: T201  # for who looks

    async def cards(self, **wanted: Any) -> list[Any]:
        """Those whose status has these values."""
        found = (await self.api.list(kinds.GPU_DEVICES)).items
        return [one for one in found if all(getattr(one.status, key) == text for key, text in wanted.items())]

    async def pool(self, **allocation: Any) -> None:
        """Cards 0 and 1 of the node."""
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
        """What device plugins would have registered."""
        now = {name: str(count) for name, count in amounts.items()}
        await self.api.patch(
            kinds.NODES, NODE, {"status": {"capacity": now, "allocatable": now}}, subresource="status"
        )

    async def pod(self, name: str, resource: str, **spec: Any) -> None:
        body = asking(name, resource, **spec)

        async def admitted() -> bool:
            """The API server learns of a webhook's authority a moment after it was written."""
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
            found = await self.api.get(kinds.PODS, name, namespace="default")
            told = found.status.conditions
            return any(one.type == "PodScheduled" and one.status == "False" for one in told)

        await self.until(refused, f"pod {name} to find no place")

    async def promised(self, name: str) -> list[str]:
        """The cards of its allocation."""
        pod = await self.api.get(kinds.PODS, name, namespace="default")
        return [one["card"] for one in json.loads(pod.metadata.annotations["gpu.mps.io/allocation"])]

    async def ends(self, *names: str) -> None:
        for name in names:
            await self.api.delete(kinds.PODS, name, namespace="default", how=AT_ONCE)

    async def reserves(self, name: str, cards: int) -> None:
        spec = {"podKey": f"default/{name}", "nodeName": NODE, "numCards": cards, "percentPerCard": 100}
        body = {"metadata": {"name": name}, "spec": spec}
        await self.api.create(kinds.RESERVATIONS, body, namespace="default")

    async def decided(self, name: str) -> str:
        """How a Reservation was decided."""

        async def phase() -> str:
            found = await self.api.get(kinds.RESERVATIONS, name, namespace="default")
            return found.status.phase if found.status.phase in ("Reserved", "Failed") else ""

        told: str = await self.until(phase, f"Reservation {name} to be decided")
        return told


def asking(name: str, resource: str, **spec: Any) -> Raw:
    """A pod that wants one of these."""
    main = {"name": "main", "image": "any", "resources": {"limits": {resource: "1"}}}
    placed = {"schedulerName": "croupier-scheduler", "containers": [main]}
    return {"metadata": {"name": name}, "spec": {**placed, **spec}}


@contextlib.asynccontextmanager
async def day(town: Town) -> AsyncIterator[Day]:
    async with client.connect(config.load(town.lab.kubeconfig), field_manager="a-person") as api:
        mount = town.folder / "cgroup"
        mount.mkdir()
        await api.create(kinds.NAMESPACES, {"metadata": {"name": "offices"}})
        async with (
            stall(api, "offices", mount) as floor,
            hands.serving(town.folder / "kubelet/pod-resources/kubelet.sock") as handing,
        ):
            living = asyncio.create_task(_live(floor))
            try:
                yield Day(town, api, floor, handing)
            finally:
                living.cancel()


async def _live(floor: Stall) -> None:
    """Time passes for pods whose control groups are made up, and their kubelet follows what is asked."""
    while True:
        for name, guest in list(floor.guests.items()):
            pod = floor.sources.pods.named(name, floor.namespace)
            if pod is not None and (wanted := pod.spec.containers[0].resources.limits["cpu"]):
                with contextlib.suppress(ApiError):
                    await floor.reports(name, wanted)
            guest.live(floor.mount)
        await asyncio.sleep(0.5)
