"""What happens in a day to cards, pools, reservations and limits."""

import asyncio
import json

from croupier.api import kinds
from croupier.core import quantity
from croupier.kube.client import Selection
from tests.install import a_day
from tests.install.a_day import Day
from tests.install.town import COUNT, NAMESPACE, NODE

SMALL = json.dumps(
    {
        "version": "v1",
        "mig-configs": {
            "selected": [{"devices": [2, 3], "mig-enabled": True, "mig-devices": ["1g.10gb"] * 7}]
        },
    }
)


async def cards_are_found(day: Day) -> None:
    async def found() -> bool:
        return len(await day.cards()) == COUNT

    await day.until(found, "all cards")

    async def ready() -> bool:
        one = await day.api.get(kinds.GPU_NODE_INVENTORIES, NODE)
        return any(each.type == "ReadyForPooling" and each.status == "True" for each in one.status.conditions)

    await day.until(ready, "the node to be fit for pools")


def a_card_is_lost(day: Day) -> None:
    """So that others get its number. It might come back, so it is remembered for a minute."""
    day.town.faults.write_text("cards: {2: {gone: true}}\n")


async def a_pod_waits_in_vain(day: Day) -> None:
    """All day. Whoever keeps the ledger wakes it for what nodes come by; no accident can do that before."""
    await day.pod("in-vain", "nvidia.com/gpu", nodeSelector={"example.com/nowhere": "true"})
    await day.waits("in-vain")


async def a_pod_comes_too_early(day: Day, name: str, *, offered: int) -> None:
    """The kubelet offers one more a moment later, of which the scheduler would make nothing by itself."""
    await day.kubelet_offers({"gpu.deckhouse.io/team": offered})
    await day.pod(name, "gpu.deckhouse.io/team")
    await day.waits(name)
    await day.kubelet_offers({"gpu.deckhouse.io/team": 2})
    await day.runs(name)


async def a_pool_serves(day: Day) -> None:
    """Until a kubelet gives a pod the free card instead of its own."""
    await day.pod("team-1", "gpu.deckhouse.io/team")
    await day.runs("team-1")
    await day.ends("keeps")
    await day.capacity(2, free=1)
    (mine,) = await day.promised("team-1")
    pooled = {one.metadata.name for one in await day.cards() if one.status.pool_ref}
    (other,) = pooled - {mine}
    day.hands.holds["default/team-1"] = "gpu.deckhouse.io/team", [other]

    async def followed() -> bool:
        return await day.promised("team-1") == [other]

    await day.until(followed, "the allocation to follow the kubelet")


async def the_ledger_follows(day: Day) -> None:
    """At its next audit: once a minute, and whenever its work begins."""
    (theirs,) = await day.promised("team-1")
    pooled = {one.metadata.name for one in await day.cards() if one.status.pool_ref}

    async def known() -> bool:
        states = {one.metadata.name: one.status.state for one in await day.cards()}
        return states[theirs] == "Reserved" and {states[one] for one in pooled - {theirs}} == {"Assigned"}

    await day.until(known, "the ledger to follow the allocation")


async def a_booking_expires(day: Day) -> None:
    """One finds no place in time; there is one when a pod that was given the card of another is removed."""
    day.hands.holds["default/team-1"] = "gpu.deckhouse.io/team", await day.promised("team-2")
    await day.pod("team-3", "gpu.deckhouse.io/team")

    async def told() -> bool:
        events = await day.api.list(kinds.EVENTS, Selection("default"))
        return any(
            one.reason == "GPUReservationExpired" and one.regarding.name == "team-3" for one in events.items
        )

    await day.until(told, "the booking to expire")

    async def removed() -> list[str]:
        listed = await day.api.list(kinds.PODS, Selection("default"))
        left = [name for one in listed.items if (name := one.metadata.name).startswith("team-")]
        return left if len(left) == 2 else []

    left = await day.until(removed, "the pod with the card of another to be removed")
    day.hands.holds.clear()
    await day.runs("team-3")
    day.town.told["team-3"] = await day.promised("team-3")
    await day.ends(*left)


async def reservations_come_and_go(day: Day) -> None:
    """A pod that no card is left for waits until a Reservation ends, of which no scheduler hears."""
    names = (f"granted-{count}" for count in range(100))

    async def both() -> str:
        """What was held a moment ago may still be on its way back."""
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


async def cards_are_cut(day: Day) -> None:
    """Also a fallback: no node offers what the pod asks for."""
    note = {"metadata": {"annotations": {"run.ai/mig.config": SMALL}}}
    await day.api.patch(kinds.NODES, NODE, note)

    async def cut() -> bool:
        found = await day.cards()
        return sum(len(one.status.cut.slots) == 7 for one in found if one.status.cut) == 2

    await day.until(cut, "two cards in seven")
    await day.kubelet_offers({"nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb": 14})
    wish = a_day.asking("smaller", "nvidia.com/mig-2g.20gb")

    async def known() -> bool:
        made = await day.api.create(kinds.PODS, wish, namespace="default", dry_run=True)
        return "nvidia.com/mig-1g.10gb" in made.spec.containers[0].resources.limits

    await day.until(known, "the webhook to know what is offered")
    await day.pod("smaller", "nvidia.com/mig-2g.20gb")
    await day.runs("smaller")
    await day.ends("smaller")


async def limits_move(day: Day) -> None:
    """By the market; and one by hand, of a pod that is there, and of one that is not."""
    await asyncio.gather(day.floor.pod("busy", wants=800), day.floor.pod("by-hand", labels={}))
    for name in ("by-hand", "nobody"):
        spec = {"namespace": "offices", "podName": name, "desiredCPULimit": "300m"}
        body = {"metadata": {"name": name}, "spec": spec}
        await day.api.create(kinds.POD_ALLOCATIONS, body, namespace="offices")

    async def raised() -> bool:
        pods = [await day.api.get(kinds.PODS, one, namespace="offices") for one in ("busy", "by-hand")]
        limits = [quantity.parse(one.spec.containers[0].resources.limits["cpu"]).millis for one in pods]
        return limits[0] > 2 * 200 and limits[1] == 300

    await day.until(raised, "the limit of a busy pod to be raised twice")


async def a_limit_moves_again(day: Day) -> None:
    """Whoever moves limits now."""
    spec = {"desiredCPULimit": "400m"}
    await day.api.patch(kinds.POD_ALLOCATIONS, "by-hand", {"spec": spec}, namespace="offices")

    async def moved() -> bool:
        pod = await day.api.get(kinds.PODS, "by-hand", namespace="offices")
        return bool(pod.spec.containers[0].resources.limits["cpu"] == "400m")

    await day.until(moved, "a limit to be moved by hand again")


async def a_pool_is_rebuilt(day: Day) -> None:
    await day.pool(mode="MIG", migProfile="1g.10gb")
    await day.capacity(14)


async def night(day: Day) -> None:
    """The pool is given up, the card that was lost in the morning is forgotten, and the whole node goes."""
    await day.api.delete(kinds.GPU_POOLS, "team")

    async def gone() -> bool:
        maps = await day.api.list(kinds.CONFIG_MAPS, Selection(NAMESPACE, labels="gpu.deckhouse.io/pool"))
        return not maps.items and not (await day.api.list(kinds.GPU_POOLS)).items

    await day.until(gone, "the pool to be gone")

    async def forgotten() -> bool:
        return len(await day.cards()) == COUNT - 1

    await day.until(forgotten, "the lost card to be forgotten")
    day.town.lab.kill("croupier-node")
    await day.api.delete(kinds.NODES, NODE)

    async def closed() -> bool:
        return not (await day.api.list(kinds.NODE_RESERVATIONS)).items

    await day.until(closed, "the ledger of a node that is gone to be closed")
