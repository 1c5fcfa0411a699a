"""Device plugins on a real kubelet, with its traps: each of them was met before it got a test here."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest_asyncio

from croupier.api import kinds
from croupier.core.nodes import aftercheck, devices
from croupier.core.nodes.devices import CardSlot, Membership, NodeCard
from croupier.kube import client, config
from croupier.kube.client import Selection
from croupier.lab import realnode
from croupier.lab.lab import Lab
from croupier.node.kubelet.pod_resources import PodResources
from tests.controllers.world import watched
from tests.kube.waiting import until, until_async
from tests.node.plugin_house import WITHIN, House, cards, pod

GPU = "nvidia.com/gpu"
PERCENT = "gpu.mps.io/percent"
POOL = "gpu.deckhouse.io/"


@pytest_asyncio.fixture
async def house(lab: Lab, real_node: str, namespace: str) -> AsyncIterator[House]:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(client.connect(config.load(lab.cluster.kubeconfig)))
        here = Selection(fields=f"metadata.name={real_node}")
        nodes = await stack.enter_async_context(watched(api, kinds.NODES, here))
        pods = await stack.enter_async_context(watched(api, kinds.PODS, Selection(namespace)))
        yield House(lab, api, real_node, namespace, pods.store, nodes.store)


async def test_what_is_offered_is_allocatable_and_follows_every_change(house):
    two = cards(house.node, 2)
    async with house.plugins() as plugins:
        await house.serves(plugins, devices.offer(two), {GPU: 2, PERCENT: 200})

        slots = tuple(CardSlot(f"1g.10gb-{n}", "1g.10gb", f"MIG-{n}") for n in range(7))
        await plugins.serve(devices.offer([replace(two[0], mig_enabled=True, slots=slots), two[1]]))
        await house.shows({GPU: 1, PERCENT: 100, "nvidia.com/mig-1g.10gb": 7})

        await plugins.serve(devices.offer([replace(two[0], healthy=False), two[1]]))
        await house.shows({GPU: 1, PERCENT: 100, "nvidia.com/mig-1g.10gb": 0})
        await house.shows({GPU: 2, PERCENT: 200}, of="capacity")

        await plugins.serve(devices.offer([replace(two[0], changing=True)]))
        await house.shows({GPU: 0, PERCENT: 0})
        assert plugins.standing.serves == {GPU, PERCENT, "nvidia.com/mig-1g.10gb"}
        assert plugins.standing.troubles == ()
    await until(lambda: not list(house.directory.glob("croupier-*")), "no socket to be left")


async def test_a_pod_gets_what_it_was_promised_and_is_told_so(house):
    async with house.plugins() as plugins:
        mps = Membership("mps", "MPS")
        three = cards(house.node, 3)
        offer = devices.offer([three[0], three[1], replace(three[2], pool=mps)])
        await house.serves(plugins, offer, {GPU: 2, PERCENT: 200, f"{POOL}mps": 100})

        first, second, third = (card.id for card in three)
        half = {"card": second, "index": 1, "percent": 50}
        await house.opens(
            pod("whole", {GPU: 1}, promised=[{"card": first, "index": 0, "percent": 100}]),
            pod("half", {PERCENT: 50}, promised=[half]),
            pod("other-half", {PERCENT: 50}, promised=[half]),
            pod("pooled", {f"{POOL}mps": 30}, promised=[{"card": third, "index": 2, "percent": 30}]),
        )
        await house.runs("whole", "half", "other-half", "pooled")

        whole = await house.environment("whole")
        assert whole["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        assert whole["SEEN"] == f"{first}/"
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in whole
        pooled = await house.environment("pooled")
        assert {name: pooled[name] for name in pooled if name.startswith(("CUDA", "CROUPIER", "NVIDIA"))} == {
            "NVIDIA_VISIBLE_DEVICES": "GPU-2",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=24000M",
            "CROUPIER_CARDS": third,
            "CROUPIER_POOL": "mps",
        }
        for name in ("half", "other-half"):
            assert {device.split("::")[0] for device in await house.has(plugins, name)} == {second}
        assert aftercheck.compare(house.bound(), await plugins.holdings(), {c.id: c for c in three}) == ()


async def test_what_a_pod_has_by_mistake_is_given_to_nobody_who_is_promised_it_meanwhile(house):
    """Before its allocation follows, the ledger takes its card for free.

    The kubelet would give it twice: it does not know that both resources are the same card.
    """
    one, other = cards(house.node, 2)
    async with house.plugins() as plugins:
        await house.serves(plugins, devices.offer([one, other]), {GPU: 2, PERCENT: 200})
        await house.opens(_early("mistaken", one))
        await house.runs("mistaken")
    await _annotate(house, "mistaken", other.id)

    async with house.plugins() as plugins:  # an agent that was not there when it happened
        await plugins.serve(devices.offer([one, other]))
        await house.served(plugins, GPU, PERCENT)
        assert await house.has(plugins, "mistaken") == [one.id], "though an init container has it"
        await house.opens(pod("second", {PERCENT: 50}, promised=[{**_all(one), "percent": 50}]))
        await house.runs("second")
        assert {device.split("::")[0] for device in await house.has(plugins, "second")} == {other.id}
        await house.opens(pod("third", {PERCENT: 100}, promised=[_all(one)]))
        why = await house.fails("third")
        assert f"pod {house.namespace}/mistaken has the card, or was promised it: {one.id}" in why

        found = aftercheck.compare(house.bound(), await plugins.holdings(), {one.id: one, other.id: other})
        assert [(wrong.pod.key.split("/")[1], wrong.can_move) for wrong in found] == [
            ("mistaken", True),
            ("second", True),
        ]


def _all(card: NodeCard) -> dict[str, Any]:
    return {"card": card.id, "index": card.index, "percent": 100}


def _early(name: str, card: NodeCard) -> dict[str, Any]:
    """A pod whose init container has the card, and its main container nothing."""
    made = pod(name, {GPU: 1}, promised=[_all(card)])
    (main,) = made["spec"]["containers"]
    made["spec"]["initContainers"] = [{**main, "name": "init", "command": ["true"]}]
    del main["resources"]
    return made


async def test_a_restarted_kubelet_is_served_again_and_pods_keep_their_devices(house):
    resource = f"{POOL}restart"
    listed = cards(house.node, 2, Membership("restart", "Exclusive"))
    async with house.plugins() as plugins:
        await house.serves(plugins, devices.offer(listed), {resource: 2})
        await house.opens(pod("before", {resource: 1}))
        await house.runs("before")
        had = await house.has(plugins, "before")

        house.lab.kill(realnode.KUBELET)
        await realnode.restart(house.lab, realnode.KUBELET)

        await house.served(plugins, resource)
        await house.shows({resource: 2})
        await house.opens(pod("after", {resource: 1}))
        await house.runs("before", "after")
        assert await house.has(plugins, "before") == had
        assert await house.has(plugins, "after") != had


async def test_when_an_old_process_stops_the_new_one_registers_again(house):
    """Trap: the kubelet takes the end of the old one for the end of the resource."""
    resource = f"{POOL}upgrade"
    offer = devices.offer(cards(house.node, 1, Membership("upgrade", "TimeSlice")))
    async with house.plugins() as new:
        async with house.plugins() as old:
            await house.serves(old, offer, {resource: 8})
            await house.serves(new, offer, {resource: 8})
        await _until_registered(house, resource, 8)
        assert new.standing.serves == {resource}
        await house.opens(pod("served", {resource: 1}))
        await house.runs("served")


async def _until_registered(house: House, resource: str, many: int) -> None:
    async def complete() -> bool:
        return len(await house.registered(resource)) == many

    await until_async(complete, f"{many} of {resource} at the kubelet", WITHIN)


async def test_a_socket_that_somebody_removed_is_bound_again(house):
    """Trap: nobody notices, and the next registration would fail and leave devices nobody serves."""
    resource = f"{POOL}socket"
    offer = devices.offer(cards(house.node, 1, Membership("socket", "TimeSlice")))
    async with house.plugins() as plugins:
        await house.serves(plugins, offer, {resource: 8})
        (socket,) = house.directory.glob("croupier-*")

        socket.unlink()

        await until(lambda: set(house.directory.glob("croupier-*")) - {socket}, "another socket", WITHIN)
        await house.served(plugins, resource)
        await _until_registered(house, resource, 8)


async def test_a_resource_that_somebody_else_serves_is_left_alone_until_it_is_gone(house):
    resource = f"{POOL}theirs"
    theirs = devices.offer(cards("GPU", 3, Membership("theirs", "Exclusive")))
    ours = devices.offer(cards(house.node, 2, Membership("theirs", "Exclusive")))
    quick = {"ask_every": 0.5, "others_gone_after": 1.0}
    async with house.plugins(**quick) as plugins:
        async with house.plugins(name="GPU") as other:
            await house.serves(other, theirs, {resource: 3})
            await plugins.serve(ours)
            await until(lambda: resource in plugins.standing.served_by_others, "the other", WITHIN)
            assert resource not in plugins.standing.serves
            assert len(list(house.directory.glob("croupier-*"))) == 1, "nothing is even bound"
        await house.served(plugins, resource)
        await house.shows({resource: 2})
        assert plugins.standing.served_by_others == frozenset()


async def test_whoever_registers_over_us_keeps_the_resource(house):
    resource = f"{POOL}taken"
    theirs = devices.offer(cards("GPU", 3, Membership("taken", "Exclusive")))
    ours = cards(house.node, 2, Membership("taken", "Exclusive"))
    async with house.plugins(name="GPU") as other, house.plugins(ask_every=0.5) as plugins:
        await house.serves(plugins, devices.offer(ours), {resource: 2})
        await _registers_over(other, theirs)
        await until(lambda: resource in plugins.standing.served_by_others, "the other", WITHIN)

        await plugins.serve(devices.offer(ours[:1]))

        await house.opens(pod("theirs", {resource: 1}))
        await house.runs("theirs")
        assert {device.split("-")[0] for device in await house.registered(resource)} == {"GPU"}
        assert len(await house.registered(resource)) == 3


async def _registers_over(other: Any, theirs: devices.Offer) -> None:
    other._registry = _Nothing()  # one that does not look who is there before it registers
    await other.serve(theirs)
    await until(lambda: bool(other.standing.serves), "the other to be served", WITHIN)


class _Nothing:
    async def registered(self) -> dict[str, tuple[str, ...]]:
        return {}


async def test_pods_with_each_others_cards_are_told_apart_afterwards(house):
    """As when both were bound at once, and the kubelet meant the other one."""
    one, other = cards(house.node, 2)
    async with house.plugins() as plugins:
        await house.serves(plugins, devices.offer([one, other]), {GPU: 2})
        await house.opens(pod("a", {GPU: 1}), pod("b", {GPU: 1}))
        await house.runs("a", "b")
        has = {name: await house.has(plugins, name) for name in ("a", "b")}
        assert sorted(has.values()) == [[one.id], [other.id]]

        await _annotate(house, "a", has["b"][0])
        await _annotate(house, "b", has["a"][0])
        listed = {one.id: one, other.id: other}
        await until(lambda: all(p.grant for p in house.bound()), "the annotations")
        found = aftercheck.compare(house.bound(), await plugins.holdings(), listed)

        assert [(m.pod.key, m.can_move) for m in found] == [
            (f"{house.namespace}/a", True),
            (f"{house.namespace}/b", True),
        ]
        await _annotate(house, "b", has["b"][0])
        await until(lambda: [p.grant[0].card for p in house.bound() if p.key.endswith("/b")] == has["b"])
        (wrong,) = aftercheck.compare(house.bound(), await plugins.holdings(), listed)
        named = (f"100 of card {has['b'][0]}", f"100 of card {has['a'][0]}")
        assert str(wrong) == "pod {}/a was promised {} and has {}".format(house.namespace, *named)


async def _annotate(house: House, name: str, card: str) -> None:
    text = f'[{{"card":"{card}","index":0,"percent":100}}]'
    await asyncio.to_thread(
        house.lab.kubectl,
        *("annotate", "pod", name, "-n", house.namespace, "--overwrite", f"gpu.mps.io/allocation={text}"),
    )


async def test_many_questions_at_once_are_all_answered(house):
    """Trap: the kubelet answers ten at once and refuses the rest."""
    resources = PodResources(realnode.ground(house.lab).plugins / "pod-resources" / "kubelet.sock")

    answers = await asyncio.gather(*(resources.holdings() for _ in range(40)))

    assert len(answers) == 40


async def test_a_sick_card_under_a_running_pod_is_told_to_its_owner(house):
    """Trap: one that is dropped from the list is not noticed at all."""
    resource = f"{POOL}sick"
    (card,) = cards(house.node, 1, Membership("sick", "Exclusive"))
    async with house.plugins() as plugins:
        await house.serves(plugins, devices.offer([card]), {resource: 1})
        await house.opens(pod("owner", {resource: 1}))
        await house.runs("owner")

        await plugins.serve(devices.offer([replace(card, healthy=False)]))

        where = "jsonpath={.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health}"
        told = ("get", "pod", "owner", "-n", house.namespace, "-o", where)
        await until(lambda: house.lab.kubectl(*told).stdout == "Unhealthy", "the pod's status", WITHIN)
        await house.shows({resource: 0})
        assert house.phase("owner") == "Running"
