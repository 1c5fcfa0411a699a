"""A day in an installation: everything that can happen to cards, pools, reservations and limits, once."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from croupier.api import kinds
from croupier.core import quantity
from croupier.kube import client, config
from croupier.kube.client import Client, Deletion, Selection
from croupier.kube.errors import ApiError, NotFound
from tests.install import hands
from tests.install.hands import Hands
from tests.install.town import NAMESPACE, NODE, Town
from tests.kube import waiting
from tests.node.stall import Stall, stall

PATIENCE = 90.0
MANAGERS = (
    "gpu-inventory-controller",
    "gpu-bootstrap-controller",
    "gpupool-controller",
    "croupier-ledger",
    "croupier-cpu-limits",
)
SMALL = json.dumps(
    {
        "version": "v1",
        "mig-configs": {
            "selected": [{"devices": [2, 3], "mig-enabled": True, "mig-devices": ["1g.10gb"] * 7}]
        },
    }
)
AT_ONCE = Deletion(grace_seconds=0)


@dataclass
class Day:
    town: Town
    api: Client
    floor: Stall
    hands: Hands

    async def begins(self) -> None:
        town = self.town
        for name in MANAGERS:
            town.start(name)
        town.start("croupier-extender")
        await self.until(self._served, "somebody to look after a node without an agent")
        town.start("croupier-node", f"--faults={town.faults}", "--every=1", "--heartbeat=2", node=NODE)
        fast = ("--every=0.5", "--heartbeat=2", "--raise-after=1", "--lower-after=2")
        market = f"--cgroup-mount={self.floor.mount}"
        town.start("croupier-market", market, *fast, node=self.floor.node)
        self._webhook()
        await town.ready([*MANAGERS, "croupier-extender", "croupier-node", "croupier-market"])
        await town.ready(["gpu-admission-webhook"])
        town.start_scheduler()

    async def _served(self) -> bool:
        """GPU Feature Discovery or the exporter was started; an agent makes them superfluous."""
        return bool((await self.api.list(kinds.PODS, Selection(NAMESPACE))).items)

    def _webhook(self) -> None:
        """It has to know its own address for its certificate; in a pod its Service has a name."""
        self.town.start("gpu-admission-webhook", "--drain=0", "--url=https://127.0.0.1:{listen}")
        self.town.listen_by_url()

    async def until(self, look: Callable[[], Awaitable[Any]], what: str) -> Any:
        async def calm() -> Any:
            with contextlib.suppress(NotFound):
                return await look()

        return await waiting.until_async(calm, what, PATIENCE)

    async def cards(self, **wanted: Any) -> list[Any]:
        """Those whose status has these values."""
        found = (await self.api.list(kinds.GPU_DEVICES)).items
        return [one for one in found if all(getattr(one.status, key) == text for key, text in wanted.items())]

    async def pool(self, **spec: Any) -> Any:
        return await self.api.apply(
            kinds.GPU_POOLS,
            {"metadata": {"name": "team"}, "spec": spec},
            force=True,
            field_manager="a-person",
        )

    async def kubelet_offers(self, amounts: dict[str, int]) -> None:
        """What device plugins would have registered."""
        now = {name: str(count) for name, count in amounts.items()}
        await self.api.patch(
            kinds.NODES, NODE, {"status": {"capacity": now, "allocatable": now}}, subresource="status"
        )

    async def pod(self, name: str, resource: str, amount: int = 1) -> None:
        limits = {resource: str(amount)}
        spec = {
            "schedulerName": "croupier-scheduler",
            "containers": [{"name": "main", "image": "any", "resources": {"limits": limits}}],
        }

        async def admitted() -> bool:
            """The API server learns of a webhook's authority a moment after it was written."""
            try:
                await self.api.create(
                    kinds.PODS, {"metadata": {"name": name}, "spec": spec}, namespace="default"
                )
            except ApiError as error:
                if "webhook" in str(error) or "mark" in str(error):
                    return False
                raise
            return True

        await waiting.until_async(admitted, f"pod {name} to be admitted", PATIENCE)

    async def runs(self, name: str) -> None:
        async def bound() -> bool:
            return bool((await self.api.get(kinds.PODS, name, namespace="default")).spec.node_name)

        await self.until(bound, f"pod {name} to be bound")

    async def promised(self, name: str) -> list[str]:
        """The cards of its allocation."""
        pod = await self.api.get(kinds.PODS, name, namespace="default")
        return [one["card"] for one in json.loads(pod.metadata.annotations["gpu.mps.io/allocation"])]

    async def ends(self, name: str) -> None:
        await self.api.delete(kinds.PODS, name, namespace="default", how=AT_ONCE)


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


async def whole(day: Day) -> None:
    """Morning to evening; in the evening there are still cards, a pool and pods."""
    await cards_are_found(day)
    await a_pool_serves(day)
    await reservations_come_and_go(day)
    await cards_are_cut(day)
    await a_booking_expires(day)
    await settings_change(day)
    await limits_move(day)
    await a_pool_is_rebuilt(day)


async def cards_are_found(day: Day) -> None:
    async def found() -> bool:
        return len(await day.cards(state="Unassigned")) == 4

    await day.until(found, "four cards")

    async def ready() -> bool:
        one = await day.api.get(kinds.GPU_NODE_INVENTORIES, NODE)
        return any(each.type == "ReadyForPooling" and each.status == "True" for each in one.status.conditions)

    await day.until(ready, "the node to be fit for pools")


async def a_pool_serves(day: Day) -> None:
    await day.pool(
        allocation={"mode": "Exclusive"},
        deviceSelector={"include": {"indexes": ["0-1"]}},
        deviceAssignment={"requireAnnotation": False},
    )
    await capacity(day, 2)
    await day.kubelet_offers({"nvidia.com/gpu": 2, "gpu.deckhouse.io/team": 2})
    for round_ in range(2):
        await day.pod(f"team-{round_}", "gpu.deckhouse.io/team")
        await day.runs(f"team-{round_}")
    await day.pod("whole", "nvidia.com/gpu")
    await day.runs("whole")
    for name in ("team-0", "whole"):
        await day.ends(name)
    await the_kubelet_hands_out_other_cards(day)


async def the_kubelet_hands_out_other_cards(day: Day) -> None:
    """One pod has a free card instead of its own; then that of another."""
    (mine,) = await day.promised("team-1")
    pooled = {one.metadata.name for one in await day.cards() if one.status.pool_ref}
    (other,) = pooled - {mine}
    day.hands.holds["default/team-1"] = "gpu.deckhouse.io/team", [other]

    async def followed() -> bool:
        return await day.promised("team-1") == [other]

    await day.until(followed, "the allocation to follow the kubelet")

    async def known() -> bool:
        states = {one.metadata.name: one.status.state for one in await day.cards()}
        return (states[mine], states[other]) == ("Assigned", "Reserved")

    await day.until(known, "the ledger to follow the allocation")
    await day.pod("team-2", "gpu.deckhouse.io/team")
    await day.runs("team-2")
    day.hands.holds["default/team-1"] = "gpu.deckhouse.io/team", await day.promised("team-2")

    async def removed() -> bool:
        listed = await day.api.list(kinds.PODS, Selection("default"))
        return len([one for one in listed.items if one.metadata.name.startswith("team-")]) == 1

    await day.until(removed, "the pod with the card of another to be removed")
    day.hands.holds.clear()
    for one in (await day.api.list(kinds.PODS, Selection("default"))).items:
        await day.ends(one.metadata.name)


async def capacity(day: Day, total: int) -> None:
    async def enough() -> bool:
        now = (await day.api.get(kinds.GPU_POOLS, "team")).status.capacity
        return now is not None and now.total == now.available == total

    await day.until(enough, f"{total} units of the pool")


async def cards_are_cut(day: Day) -> None:
    note = {"metadata": {"annotations": {"run.ai/mig.config": SMALL}}}
    await day.api.patch(kinds.NODES, NODE, note)

    async def cut() -> bool:
        found = await day.cards()
        return sum(len(one.status.cut.slots) == 7 for one in found if one.status.cut) == 2

    await day.until(cut, "two cards in seven")
    await day.kubelet_offers({"nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb": 14})


async def reservations_come_and_go(day: Day) -> None:
    for name, cards in (("granted", 1), ("greedy", 9)):
        spec = {"podKey": f"default/{name}", "nodeName": NODE, "numCards": cards, "percentPerCard": 100}
        body = {"metadata": {"name": name}, "spec": spec}
        await day.api.create(kinds.RESERVATIONS, body, namespace="default")

        async def decided(name: str = name) -> bool:
            found = await day.api.get(kinds.RESERVATIONS, name, namespace="default")
            return found.status.phase in ("Reserved", "Failed")

        await day.until(decided, f"Reservation {name} to be decided")
    for name in ("granted", "greedy"):
        await day.api.delete(kinds.RESERVATIONS, name, namespace="default")


async def a_booking_expires(day: Day) -> None:
    """One pod finds no place in time, and is looked at again when there is one."""
    await day.pod("blocker", "gpu.deckhouse.io/team", 2)
    await day.runs("blocker")
    await day.pod("waits", "gpu.deckhouse.io/team", 2)
    await expires(day, "waits")
    await day.ends("blocker")
    await day.runs("waits")
    await day.ends("waits")
    await capacity(day, 2)


async def expires(day: Day, name: str) -> None:
    async def told() -> bool:
        events = await day.api.list(kinds.EVENTS, Selection("default"))
        return any(
            one.reason == "GPUReservationExpired" and one.regarding.name == name for one in events.items
        )

    await day.until(told, "the booking to expire")


async def settings_change(day: Day) -> None:
    """What each process says about it is an Event in our namespace."""
    found = await day.api.get(kinds.CONFIG_MAPS, "croupier-settings", namespace=NAMESPACE)
    said = f"{found.data['settings.yaml'].rstrip()}\nmaintenance: {{deadline: 2h}}\n"
    patch = {"data": {"settings.yaml": said}}
    await day.api.patch(kinds.CONFIG_MAPS, "croupier-settings", patch, namespace=NAMESPACE)


async def limits_move(day: Day) -> None:
    await day.floor.pod("busy", wants=800)

    async def raised() -> bool:
        pod = await day.api.get(kinds.PODS, "busy", namespace="offices")
        return quantity.parse(pod.spec.containers[0].resources.limits["cpu"]).millis > 2 * 200

    await day.until(raised, "the limit of a busy pod to be raised twice")


async def a_pool_is_rebuilt(day: Day) -> None:
    """Also a fallback: no node offers what the pod asks for."""
    await day.pod("smaller", "nvidia.com/mig-2g.20gb")
    await day.runs("smaller")
    await day.pool(
        allocation={"mode": "MIG", "migProfile": "1g.10gb"},
        deviceSelector={"include": {"indexes": ["0-1"]}},
        deviceAssignment={"requireAnnotation": False},
    )
    await capacity(day, 14)
    await day.ends("smaller")


async def night(day: Day) -> None:
    """The pool is given up, a card taken out (so that another gets its number), and then the whole node."""
    await day.api.delete(kinds.GPU_POOLS, "team")

    async def gone() -> bool:
        maps = await day.api.list(kinds.CONFIG_MAPS, Selection(NAMESPACE, labels="gpu.deckhouse.io/pool"))
        return not maps.items and not (await day.api.list(kinds.GPU_POOLS)).items

    await day.until(gone, "the pool to be gone")
    day.town.faults.write_text("cards: {2: {gone: true}}\n")

    async def three() -> bool:
        return len(await day.cards()) == 3

    await day.until(three, "the lost card to be forgotten")
    day.town.lab.kill("croupier-node")
    await day.api.delete(kinds.NODES, NODE)

    async def closed() -> bool:
        return not (await day.api.list(kinds.NODE_RESERVATIONS)).items

    await day.until(closed, "the ledger of a node that is gone to be closed")
