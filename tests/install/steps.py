"""Steps of the scenario with cards, pools, reservations and limits."""

import asyncio
import json

from croupier.api import kinds
from croupier.core import quantity
from croupier.kube.client.api_client import Selection
from tests.install import scenario_env
from tests.install.chart_env import COUNT, NAMESPACE, NODE
from tests.install.scenario_env import ScenarioEnv

SMALL = json.dumps(
    {
        "version": "v1",
        "mig-configs": {
            "selected": [{"devices": [2, 3], "mig-enabled": True, "mig-devices": ["1g.10gb"] * 7}]
        },
    }
)


async def wait_for_cards(day: ScenarioEnv) -> None:
    async def found() -> bool:
        return len(await day.cards()) == COUNT

    await day.until(found, "all cards")

    async def ready() -> bool:
        conditions = (await day.api.get(kinds.GPU_NODE_INVENTORIES, NODE)).status.conditions
        return any(item.type == "ReadyForPooling" and item.status == "True" for item in conditions)

    await day.until(ready, "the node to be ready for pooling")


def lose_card(day: ScenarioEnv) -> None:
    """Remove card 2, so that the indexes of other cards change. The inventory keeps it for a minute."""
    day.town.faults.write_text("cards: {2: {gone: true}}\n")


async def create_unschedulable_pod(day: ScenarioEnv) -> None:
    """A pod that no node matches; the capacity manager requeues it when nodes gain resources."""
    await day.pod("in-vain", "nvidia.com/gpu", nodeSelector={"example.com/nowhere": "true"})
    await day.waits("in-vain")


async def create_pod_before_capacity(day: ScenarioEnv, name: str, *, offered: int) -> None:
    """Create a pod before its resource is allocatable; the scheduler alone would not retry it."""
    await day.kubelet_offers({"gpu.deckhouse.io/team": offered})
    await day.pod(name, "gpu.deckhouse.io/team")
    await day.waits(name)
    await day.kubelet_offers({"gpu.deckhouse.io/team": 2})
    await day.runs(name)


async def use_pool(day: ScenarioEnv) -> None:
    """A kubelet assigns another card than allocated; the allocation follows."""
    await day.pod("team-1", "gpu.deckhouse.io/team")
    await day.runs("team-1")
    await day.ends("keeps")
    await day.capacity(2, free=1)
    (mine,) = await day.promised("team-1")
    pooled = {card.metadata.name for card in await day.cards() if card.status.pool_ref}
    (other,) = pooled - {mine}
    day.hands.holds["default/team-1"] = "gpu.deckhouse.io/team", [other]

    async def followed() -> bool:
        return await day.promised("team-1") == [other]

    await day.until(followed, "the allocation to follow the kubelet")


async def wait_for_ledger_sync(day: ScenarioEnv) -> None:
    """Wait for the next audit, which corrects the ledger."""
    (theirs,) = await day.promised("team-1")
    pooled = {card.metadata.name for card in await day.cards() if card.status.pool_ref}

    async def known() -> bool:
        states = {card.metadata.name: card.status.state for card in await day.cards()}
        return states[theirs] == "Reserved" and {states[name] for name in pooled - {theirs}} == {"Assigned"}

    await day.until(known, "the ledger to follow the allocation")


async def expire_booking(day: ScenarioEnv) -> None:
    """A booking expires; later the pod is placed when a pod with a mismatched card is deleted."""
    day.hands.holds["default/team-1"] = "gpu.deckhouse.io/team", await day.promised("team-2")
    await day.pod("team-3", "gpu.deckhouse.io/team")

    async def expired() -> bool:
        events = await day.api.list(kinds.EVENTS, Selection("default"))
        return any(
            event.reason == "GPUReservationExpired" and event.regarding.name == "team-3"
            for event in events.items
        )

    await day.until(expired, "the booking to expire")

    async def removed() -> list[str]:
        listed = await day.api.list(kinds.PODS, Selection("default"))
        left = [name for pod in listed.items if (name := pod.metadata.name).startswith("team-")]
        return left if len(left) == 2 else []

    left = await day.until(removed, "the pod with the mismatched card to be deleted")
    day.hands.holds.clear()
    await day.runs("team-3")
    day.town.results["team-3"] = await day.promised("team-3")
    await day.ends(*left)


async def create_and_delete_reservations(day: ScenarioEnv) -> None:
    """A pod is requeued when a Reservation is deleted, which the scheduler does not watch."""
    names = (f"granted-{count}" for count in range(100))

    async def both() -> str:
        """Retry, because earlier holds may not be released yet."""
        name = next(names)
        await day.reserves(name, 2)
        if await day.decided(name) == "Reserved":
            return name
        await day.api.delete(kinds.RESERVATIONS, name, namespace="default")
        return ""

    granted = await day.until(both, "both cards to be reserved")
    await day.reserves("greedy", 9)
    await day.decided("greedy")
    await day.pod("whole", "nvidia.com/gpu")

    await day.waits("whole")
    for name in (granted, "greedy"):
        await day.api.delete(kinds.RESERVATIONS, name, namespace="default")
    await day.runs("whole")
    await day.ends("whole")


async def repartition_cards(day: ScenarioEnv) -> None:
    """Repartition cards; also covers a fallback of a pod that requests another profile."""
    note = {"metadata": {"annotations": {"run.ai/mig.config": SMALL}}}
    await day.api.patch(kinds.NODES, NODE, note)

    async def cut() -> bool:
        cards = await day.cards()
        return sum(len(card.status.cut.slots) == 7 for card in cards if card.status.cut) == 2

    await day.until(cut, "two cards with seven partitions")
    await day.kubelet_offers({"nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb": 14})
    manifest = scenario_env.pod_manifest("smaller", "nvidia.com/mig-2g.20gb")

    async def known() -> bool:
        made = await day.api.create(kinds.PODS, manifest, namespace="default", dry_run=True)
        return "nvidia.com/mig-1g.10gb" in made.spec.containers[0].resources.limits

    await day.until(known, "the webhook to know what is offered")
    await day.pod("smaller", "nvidia.com/mig-2g.20gb")
    await day.runs("smaller")
    await day.ends("smaller")


async def raise_limits(day: ScenarioEnv) -> None:
    """Limits change by the market, and by PodAllocations for an existing and a missing pod."""
    await asyncio.gather(day.floor.pod("busy", wants=800), day.floor.pod("by-hand", labels={}))
    for name in ("by-hand", "missing"):
        spec = {"namespace": "offices", "podName": name, "desiredCPULimit": "300m"}
        body = {"metadata": {"name": name}, "spec": spec}
        await day.api.create(kinds.POD_ALLOCATIONS, body, namespace="offices")

    async def raised() -> bool:
        pods = [await day.api.get(kinds.PODS, name, namespace="offices") for name in ("busy", "by-hand")]
        limits = [quantity.parse(pod.spec.containers[0].resources.limits["cpu"]).millis for pod in pods]
        return limits[0] > 2 * 200 and limits[1] == 300

    await day.until(raised, "the limit of a busy pod to be raised twice")


async def change_limit_again(day: ScenarioEnv) -> None:
    """The new leader applies a changed limit."""
    spec = {"desiredCPULimit": "400m"}
    await day.api.patch(kinds.POD_ALLOCATIONS, "by-hand", {"spec": spec}, namespace="offices")

    async def moved() -> bool:
        pod = await day.api.get(kinds.PODS, "by-hand", namespace="offices")
        return bool(pod.spec.containers[0].resources.limits["cpu"] == "400m")

    await day.until(moved, "a limit to be moved by hand again")


async def change_pool_mode(day: ScenarioEnv) -> None:
    await day.pool(mode="MIG", migProfile="1g.10gb")
    await day.capacity(14)


async def delete_everything(day: ScenarioEnv) -> None:
    """Delete the pool, wait until the lost card is removed, and delete the node."""
    await day.api.delete(kinds.GPU_POOLS, "team")

    async def gone() -> bool:
        maps = await day.api.list(kinds.CONFIG_MAPS, Selection(NAMESPACE, labels="gpu.deckhouse.io/pool"))
        return not maps.items and not (await day.api.list(kinds.GPU_POOLS)).items

    await day.until(gone, "the pool to be gone")

    async def forgotten() -> bool:
        return len(await day.cards()) == COUNT - 1

    await day.until(forgotten, "the lost card to be removed")
    day.town.lab.kill("croupier-node")
    await day.api.delete(kinds.NODES, NODE)

    async def closed() -> bool:
        return not (await day.api.list(kinds.NODE_RESERVATIONS)).items

    await day.until(closed, "the ledger of the deleted node to be removed")
