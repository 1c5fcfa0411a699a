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


async def wait_for_cards(env: ScenarioEnv) -> None:
    async def found() -> bool:
        return len(await env.cards()) == COUNT

    await env.until(found, "all cards")

    async def ready() -> bool:
        conditions = (await env.api.get(kinds.GPU_NODE_INVENTORIES, NODE)).status.conditions
        return any(item.type == "ReadyForPooling" and item.status == "True" for item in conditions)

    await env.until(ready, "the node to be ready for pooling")


def lose_card(env: ScenarioEnv) -> None:
    """Remove card 2, so that the indexes of other cards change. The inventory keeps it for a minute."""
    env.chart.faults.write_text("cards: {2: {gone: true}}\n")


async def create_unschedulable_pod(env: ScenarioEnv) -> None:
    """A pod that no node matches; the capacity manager requeues it when nodes gain resources."""
    await env.pod("in-vain", "nvidia.com/gpu", nodeSelector={"example.com/nowhere": "true"})
    await env.waits("in-vain")


async def create_pod_before_capacity(env: ScenarioEnv, name: str, *, offered: int) -> None:
    """Create a pod before its resource is allocatable; the scheduler alone would not retry it."""
    await env.kubelet_offers({"gpu.deckhouse.io/team": offered})
    await env.pod(name, "gpu.deckhouse.io/team")
    await env.waits(name)
    await env.kubelet_offers({"gpu.deckhouse.io/team": 2})
    await env.runs(name)


async def use_pool(env: ScenarioEnv) -> None:
    """A kubelet assigns another card than allocated; the allocation follows."""
    await env.pod("team-1", "gpu.deckhouse.io/team")
    await env.runs("team-1")
    await env.ends("keeps")
    await env.capacity(2, free=1)
    (mine,) = await env.promised("team-1")
    pooled = {card.metadata.name for card in await env.cards() if card.status.pool_ref}
    (other,) = pooled - {mine}
    env.pod_resources.holds["default/team-1"] = "gpu.deckhouse.io/team", [other]

    async def followed() -> bool:
        return await env.promised("team-1") == [other]

    await env.until(followed, "the allocation to follow the kubelet")


async def wait_for_ledger_sync(env: ScenarioEnv) -> None:
    """Wait for the next audit, which corrects the ledger."""
    (theirs,) = await env.promised("team-1")
    pooled = {card.metadata.name for card in await env.cards() if card.status.pool_ref}

    async def known() -> bool:
        states = {card.metadata.name: card.status.state for card in await env.cards()}
        return states[theirs] == "Reserved" and {states[name] for name in pooled - {theirs}} == {"Assigned"}

    await env.until(known, "the ledger to follow the allocation")


async def expire_booking(env: ScenarioEnv) -> None:
    """A booking expires; later the pod is placed when a pod with a mismatched card is deleted."""
    env.pod_resources.holds["default/team-1"] = "gpu.deckhouse.io/team", await env.promised("team-2")
    await env.pod("team-3", "gpu.deckhouse.io/team")

    async def expired() -> bool:
        events = await env.api.list(kinds.EVENTS, Selection("default"))
        return any(
            event.reason == "GPUReservationExpired" and event.regarding.name == "team-3"
            for event in events.items
        )

    await env.until(expired, "the booking to expire")

    async def removed() -> list[str]:
        listed = await env.api.list(kinds.PODS, Selection("default"))
        left = [name for pod in listed.items if (name := pod.metadata.name).startswith("team-")]
        return left if len(left) == 2 else []

    left = await env.until(removed, "the pod with the mismatched card to be deleted")
    env.pod_resources.holds.clear()
    await env.runs("team-3")
    env.chart.results["team-3"] = await env.promised("team-3")
    await env.ends(*left)


async def create_and_delete_reservations(env: ScenarioEnv) -> None:
    """A pod is requeued when a Reservation is deleted, which the scheduler does not watch."""
    names = (f"granted-{count}" for count in range(100))

    async def both() -> str:
        """Retry, because earlier holds may not be released yet."""
        name = next(names)
        await env.reserves(name, 2)
        if await env.decided(name) == "Reserved":
            return name
        await env.api.delete(kinds.RESERVATIONS, name, namespace="default")
        return ""

    granted = await env.until(both, "both cards to be reserved")
    await env.reserves("greedy", 9)
    await env.decided("greedy")
    await env.pod("whole", "nvidia.com/gpu")

    await env.waits("whole")
    for name in (granted, "greedy"):
        await env.api.delete(kinds.RESERVATIONS, name, namespace="default")
    await env.runs("whole")
    await env.ends("whole")


async def repartition_cards(env: ScenarioEnv) -> None:
    """Repartition cards; also covers a fallback of a pod that requests another profile."""
    note = {"metadata": {"annotations": {"run.ai/mig.config": SMALL}}}
    await env.api.patch(kinds.NODES, NODE, note)

    async def cut() -> bool:
        cards = await env.cards()
        return sum(len(card.status.cut.slots) == 7 for card in cards if card.status.cut) == 2

    await env.until(cut, "two cards with seven partitions")
    await env.kubelet_offers({"nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb": 14})
    manifest = scenario_env.pod_manifest("smaller", "nvidia.com/mig-2g.20gb")

    async def known() -> bool:
        made = await env.api.create(kinds.PODS, manifest, namespace="default", dry_run=True)
        return "nvidia.com/mig-1g.10gb" in made.spec.containers[0].resources.limits

    await env.until(known, "the webhook to know what is offered")
    await env.pod("smaller", "nvidia.com/mig-2g.20gb")
    await env.runs("smaller")
    await env.ends("smaller")


async def raise_limits(env: ScenarioEnv) -> None:
    """Limits change by the market, and by PodAllocations for an existing and a missing pod."""
    await asyncio.gather(env.market.pod("busy", wants=800), env.market.pod("by-hand", labels={}))
    for name in ("by-hand", "missing"):
        spec = {"namespace": "offices", "podName": name, "desiredCPULimit": "300m"}
        body = {"metadata": {"name": name}, "spec": spec}
        await env.api.create(kinds.POD_ALLOCATIONS, body, namespace="offices")

    async def raised() -> bool:
        pods = [await env.api.get(kinds.PODS, name, namespace="offices") for name in ("busy", "by-hand")]
        limits = [quantity.parse(pod.spec.containers[0].resources.limits["cpu"]).millis for pod in pods]
        return limits[0] > 2 * 200 and limits[1] == 300

    await env.until(raised, "the limit of a busy pod to be raised twice")


async def change_limit_again(env: ScenarioEnv) -> None:
    """The new leader applies a changed limit."""
    spec = {"desiredCPULimit": "400m"}
    await env.api.patch(kinds.POD_ALLOCATIONS, "by-hand", {"spec": spec}, namespace="offices")

    async def moved() -> bool:
        pod = await env.api.get(kinds.PODS, "by-hand", namespace="offices")
        return bool(pod.spec.containers[0].resources.limits["cpu"] == "400m")

    await env.until(moved, "a limit to be moved by hand again")


async def change_pool_mode(env: ScenarioEnv) -> None:
    await env.pool(mode="MIG", migProfile="1g.10gb")
    await env.capacity(14)


async def delete_everything(env: ScenarioEnv) -> None:
    """Delete the pool, wait until the lost card is removed, and delete the node."""
    await env.api.delete(kinds.GPU_POOLS, "team")

    async def gone() -> bool:
        maps = await env.api.list(kinds.CONFIG_MAPS, Selection(NAMESPACE, labels="gpu.deckhouse.io/pool"))
        return not maps.items and not (await env.api.list(kinds.GPU_POOLS)).items

    await env.until(gone, "the pool to be gone")

    async def forgotten() -> bool:
        return len(await env.cards()) == COUNT - 1

    await env.until(forgotten, "the lost card to be removed")
    env.chart.lab.kill("croupier-node")
    await env.api.delete(kinds.NODES, NODE)

    async def closed() -> bool:
        return not (await env.api.list(kinds.NODE_RESERVATIONS)).items

    await env.until(closed, "the ledger of the deleted node to be removed")
