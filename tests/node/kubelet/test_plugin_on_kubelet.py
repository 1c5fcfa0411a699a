"""Device plugins on a real kubelet, including pitfalls that were observed on one."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest_asyncio

from croupier.api import kinds
from croupier.core.model.mig import MigDevice
from croupier.core.model.sharing import Sharing
from croupier.core.nodes import allocation_check, plugin_devices
from croupier.core.nodes.plugin_devices import NodeCard, PoolMembership
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Selection
from croupier.node.kubelet.pod_resources import PodResources
from croupier_lab import realnode
from croupier_lab.lab import Lab
from tests.controllers.ledger_env import watched
from tests.node.plugin_env import TIMEOUT, PluginEnv, cards, pod, unhealthy
from tests.polling import until, until_async

SECONDS = 30

GPU = "nvidia.com/gpu"
PERCENT = "gpu.mps.io/percent"
POOL = "gpu.deckhouse.io/"


@pytest_asyncio.fixture
async def env(lab: Lab, real_node: str, namespace: str) -> AsyncIterator[PluginEnv]:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(api_client.connect(config.load(lab.cluster.kubeconfig)))
        here = Selection(fields=f"metadata.name={real_node}")
        nodes = await stack.enter_async_context(watched(api, kinds.NODES, here))
        pods = await stack.enter_async_context(watched(api, kinds.PODS, Selection(namespace)))
        yield PluginEnv(lab, api, real_node, namespace, pods.store, nodes.store)


async def test_allocatable_follows_every_change_of_the_offer(env):
    two = cards(env.node, 2)
    async with env.plugins() as plugins:
        await env.serves(plugins, plugin_devices.served_resources(two), {GPU: 2, PERCENT: 200})

        slots = tuple(MigDevice("1g.10gb", n, 1, f"MIG-{n}") for n in range(7))
        sliced = replace(two[0], gpu=replace(two[0].gpu, mig_enabled=True, slots=slots))
        await plugins.serve(plugin_devices.served_resources([sliced, two[1]]))
        await env.shows({GPU: 1, PERCENT: 100, "nvidia.com/mig-1g.10gb": 7})

        await plugins.serve(plugin_devices.served_resources([unhealthy(two[0]), two[1]]))
        await env.shows({GPU: 1, PERCENT: 100, "nvidia.com/mig-1g.10gb": 0})
        await env.shows({GPU: 2, PERCENT: 200}, of="capacity")

        await plugins.serve(plugin_devices.served_resources([replace(two[0], changing=True)]))
        await env.shows({GPU: 0, PERCENT: 0})
        assert plugins.status.serves == {GPU, PERCENT, "nvidia.com/mig-1g.10gb"}
        assert plugins.status.troubles == ()
    await until(lambda: not list(env.directory.glob("croupier-*")), "no socket to be left")


async def test_a_pod_gets_its_granted_devices_and_environment(env):
    async with env.plugins() as plugins:
        mps = PoolMembership("mps", Sharing("MPS"))
        three = cards(env.node, 3)
        offer = plugin_devices.served_resources([three[0], three[1], replace(three[2], pool=mps)])
        await env.serves(plugins, offer, {GPU: 2, PERCENT: 200, f"{POOL}mps": 100})

        first, second, third = (card.id for card in three)
        half = {"card": second, "index": 1, "percent": 50}
        await env.opens(
            pod("whole", {GPU: 1}, promised=[{"card": first, "index": 0, "percent": 100}]),
            pod("half", {PERCENT: 50}, promised=[half]),
            pod("other-half", {PERCENT: 50}, promised=[half]),
            pod("pooled", {f"{POOL}mps": 30}, promised=[{"card": third, "index": 2, "percent": 30}]),
        )
        await env.runs("whole", "half", "other-half", "pooled")

        whole = await env.environment("whole")
        assert whole["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        assert whole["SEEN"] == f"{first}/"
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in whole
        pooled = await env.environment("pooled")
        assert {name: pooled[name] for name in pooled if name.startswith(("CUDA", "CROUPIER", "NVIDIA"))} == {
            "NVIDIA_VISIBLE_DEVICES": "GPU-2",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=24000M",
            "CROUPIER_CARDS": third,
            "CROUPIER_POOL": "mps",
        }
        for name in ("half", "other-half"):
            assert {device.split("::")[0] for device in await env.has(plugins, name)} == {second}
        assert allocation_check.compare(env.bound(), await plugins.holdings(), {c.id: c for c in three}) == ()


async def test_variables_of_the_pod_replace_those_that_come_with_its_cards(env):
    """The reason for core/pods/device_variables.py, and what admission cannot see: docs/guard.md."""
    (card,) = cards(env.node, 1)
    limits = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}
    config_map = {"metadata": {"name": "limits"}, "data": limits}
    await env.api.create(kinds.CONFIG_MAPS, config_map, namespace=env.namespace)
    async with env.plugins() as plugins:
        await env.serves(plugins, plugin_devices.served_resources([card]), {GPU: 1, PERCENT: 100})
        pods = {name: pod(name, {PERCENT: 25}, promised=[{**_all(card), "percent": 25}]) for name in ORDER}
        main = {name: made["spec"]["containers"][0] for name, made in pods.items()}
        main["written"]["env"] = [{"name": name, "value": value} for name, value in limits.items()]
        main["referred"]["envFrom"] = [{"configMapRef": {"name": "limits"}}]
        main["voided"] |= {
            "envFrom": [{"configMapRef": {"name": "limits"}}],
            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        }
        await env.opens(*pods.values())
        await env.runs(*pods)
        found = {name: await env.environment(name) for name in pods}
        assert {
            name: (one["NVIDIA_VISIBLE_DEVICES"], one["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
            for name, one in found.items()
        } == ORDER


ORDER = {
    "plain": ("GPU-0", "25"),
    "written": ("all", "100"),
    "referred": ("all", "100"),
    "voided": ("void", "100"),
}
"""What a container sees: the pod's variables replace the plugin's, and `env` replaces `envFrom`."""


async def test_a_device_that_a_pod_has_by_mistake_is_not_allocated_to_another_pod(env):
    """Until the allocation annotation is repaired, the ledger takes the card for free.

    The kubelet would allocate it twice, because it does not know that both resources are the same card.
    """
    one, other = cards(env.node, 2)
    async with env.plugins() as plugins:
        await env.serves(plugins, plugin_devices.served_resources([one, other]), {GPU: 2, PERCENT: 200})
        await env.opens(_early("mistaken", one))
        await env.runs("mistaken")
    await _annotate(env, "mistaken", other.id)

    async with env.plugins() as plugins:  # a restarted agent
        await plugins.serve(plugin_devices.served_resources([one, other]))
        await env.served(plugins, GPU, PERCENT)
        assert await env.has(plugins, "mistaken") == [one.id], "the init container's device is known"
        await env.opens(pod("second", {PERCENT: 50}, promised=[{**_all(one), "percent": 50}]))
        await env.runs("second")
        assert {device.split("::")[0] for device in await env.has(plugins, "second")} == {other.id}
        await env.opens(pod("third", {PERCENT: 100}, promised=[_all(one)]))
        why = await env.fails("third")
        assert f"pod {env.namespace}/mistaken has the card or was granted it: {one.id}" in why

        mismatches = allocation_check.compare(
            env.bound(), await plugins.holdings(), {one.id: one, other.id: other}
        )
        assert [(wrong.pod.key.split("/")[1], wrong.can_move) for wrong in mismatches] == [
            ("mistaken", True),
            ("second", True),
        ]


def _all(card: NodeCard) -> dict[str, Any]:
    return {"card": card.id, "index": card.gpu.index, "percent": 100}


def _early(name: str, card: NodeCard) -> dict[str, Any]:
    """A pod whose init container has the card. Its main container has no device."""
    manifest = pod(name, {GPU: 1}, promised=[_all(card)])
    (main,) = manifest["spec"]["containers"]
    manifest["spec"]["initContainers"] = [{**main, "name": "init", "command": ["true"]}]
    del main["resources"]
    return manifest


async def test_plugins_register_with_a_restarted_kubelet_and_pods_keep_their_devices(env):
    resource = f"{POOL}restart"
    listed = cards(env.node, 2, PoolMembership("restart", Sharing("Exclusive")))
    async with env.plugins() as plugins:
        await env.serves(plugins, plugin_devices.served_resources(listed), {resource: 2})
        await env.opens(pod("before", {resource: 1}))
        await env.runs("before")
        had = await env.has(plugins, "before")

        env.lab.kill(realnode.KUBELET)
        await realnode.restart(env.lab, realnode.KUBELET)

        await env.served(plugins, resource)
        await env.shows({resource: 2})
        await env.opens(pod("after", {resource: 1}))
        await env.runs("before", "after")
        assert await env.has(plugins, "before") == had
        assert await env.has(plugins, "after") != had


async def test_when_an_old_process_stops_the_new_one_registers_again(env):
    """Pitfall: the kubelet takes the end of the old plugin for the end of the resource."""
    resource = f"{POOL}upgrade"
    offer = plugin_devices.served_resources(
        cards(env.node, 1, PoolMembership("upgrade", Sharing("TimeSlice", slices=8)))
    )
    async with env.plugins() as new:
        async with env.plugins() as old:
            await env.serves(old, offer, {resource: 8})
            await env.serves(new, offer, {resource: 8})
        await _until_registered(env, resource, 8)
        assert new.status.serves == {resource}
        await _until_a_pod_runs(env, resource)


async def _until_a_pod_runs(env: PluginEnv, resource: str) -> None:
    """Replaces pods that failed: the kubelet refuses them until it has noticed the end of the old plugin."""
    names = (f"served-{number}" for number in itertools.count())

    async def runs() -> bool:
        name = next(names)
        await env.opens(pod(name, {resource: 1}))
        await until(lambda: env.phase(name) in ("Running", "Failed"), f"{name} to run or fail", TIMEOUT)
        return env.phase(name) == "Running"

    await until_async(runs, f"a pod with {resource} to run", TIMEOUT)


async def _until_registered(env: PluginEnv, resource: str, many: int) -> None:
    async def complete() -> bool:
        return len(await env.registered(resource)) == many

    await until_async(complete, f"{many} of {resource} at the kubelet", TIMEOUT)


async def test_a_removed_socket_is_bound_again(env):
    """Pitfall: the next registration would fail and leave devices without a plugin."""
    resource = f"{POOL}socket"
    offer = plugin_devices.served_resources(
        cards(env.node, 1, PoolMembership("socket", Sharing("TimeSlice", slices=8)))
    )
    async with env.plugins() as plugins:
        await env.serves(plugins, offer, {resource: 8})
        (socket,) = env.directory.glob("croupier-*")

        socket.unlink()

        await until(lambda: set(env.directory.glob("croupier-*")) - {socket}, "another socket", TIMEOUT)
        await env.served(plugins, resource)
        await _until_registered(env, resource, 8)


async def test_a_resource_of_another_plugin_is_taken_over_only_after_that_plugin_is_gone(env):
    resource = f"{POOL}theirs"
    theirs = plugin_devices.served_resources(cards("GPU", 3, PoolMembership("theirs", Sharing("Exclusive"))))
    ours = plugin_devices.served_resources(cards(env.node, 2, PoolMembership("theirs", Sharing("Exclusive"))))
    quick = {"ask_every": 0.5, "others_gone_after": 1.0}
    async with env.plugins(**quick) as plugins:
        async with env.plugins(name="GPU") as other:
            await env.serves(other, theirs, {resource: 3})
            await plugins.serve(ours)
            await until(lambda: resource in plugins.status.served_by_others, "the other", TIMEOUT)
            assert resource not in plugins.status.serves
            assert len(list(env.directory.glob("croupier-*"))) == 1, "nothing is even bound"
        await env.served(plugins, resource)
        await env.shows({resource: 2})
        assert plugins.status.served_by_others == frozenset()


async def test_a_plugin_that_registers_later_keeps_the_resource(env):
    resource = f"{POOL}taken"
    theirs = plugin_devices.served_resources(cards("GPU", 3, PoolMembership("taken", Sharing("Exclusive"))))
    ours = cards(env.node, 2, PoolMembership("taken", Sharing("Exclusive")))
    async with env.plugins(name="GPU") as other, env.plugins(ask_every=0.5) as plugins:
        await env.serves(plugins, plugin_devices.served_resources(ours), {resource: 2})
        await _registers_over(other, theirs)
        await until(lambda: resource in plugins.status.served_by_others, "the other", TIMEOUT)

        await plugins.serve(plugin_devices.served_resources(ours[:1]))

        await env.opens(pod("theirs", {resource: 1}))
        await env.runs("theirs")
        assert {device.split("-")[0] for device in await env.registered(resource)} == {"GPU"}
        assert len(await env.registered(resource)) == 3


async def _registers_over(other: Any, theirs: plugin_devices.ServedResources) -> None:
    other._registry = _Nothing()  # a plugin that does not check for other plugins
    await other.serve(theirs)
    await until(lambda: bool(other.status.serves), "the other to be served", TIMEOUT)


class _Nothing:
    async def registered(self) -> dict[str, tuple[str, ...]]:
        return {}


async def test_swapped_cards_of_two_pods_are_detected(env):
    """This happens if both pods are bound at the same time."""
    one, other = cards(env.node, 2)
    async with env.plugins() as plugins:
        await env.serves(plugins, plugin_devices.served_resources([one, other]), {GPU: 2})
        await env.opens(pod("a", {GPU: 1}), pod("b", {GPU: 1}))
        await env.runs("a", "b")
        has = {name: await env.has(plugins, name) for name in ("a", "b")}
        assert sorted(has.values()) == [[one.id], [other.id]]

        await _annotate(env, "a", has["b"][0])
        await _annotate(env, "b", has["a"][0])
        listed = {one.id: one, other.id: other}
        await until(lambda: all(p.grant for p in env.bound()), "the annotations")
        mismatches = allocation_check.compare(env.bound(), await plugins.holdings(), listed)

        assert [(m.pod.key, m.can_move) for m in mismatches] == [
            (f"{env.namespace}/a", True),
            (f"{env.namespace}/b", True),
        ]
        await _annotate(env, "b", has["b"][0])
        await until(lambda: [p.grant[0].card for p in env.bound() if p.key.endswith("/b")] == has["b"])
        (wrong,) = allocation_check.compare(env.bound(), await plugins.holdings(), listed)
        named = (f"100 of card {has['b'][0]}", f"100 of card {has['a'][0]}")
        assert str(wrong) == "pod {}/a was granted {} but has {}".format(env.namespace, *named)


async def _annotate(env: PluginEnv, name: str, card: str) -> None:
    text = f'[{{"card":"{card}","index":0,"percent":100}}]'
    await asyncio.to_thread(
        env.lab.kubectl,
        *("annotate", "pod", name, "-n", env.namespace, "--overwrite", f"gpu.mps.io/allocation={text}"),
    )


async def test_many_concurrent_list_calls_all_succeed(env):
    """Pitfall: the kubelet accepts a burst of ten calls and refuses the rest."""
    resources = PodResources(realnode.paths_of(env.lab).plugins / "pod-resources" / "kubelet.sock")

    answers = await asyncio.gather(*(resources.holdings() for _ in range(40)))

    assert len(answers) == 40


async def test_an_unhealthy_card_shows_in_the_status_of_its_running_pod(env):
    """Pitfall: the kubelet does not notice a device that disappears from the list."""
    resource = f"{POOL}sick"
    (card,) = cards(env.node, 1, PoolMembership("sick", Sharing("Exclusive")))
    async with env.plugins() as plugins:
        await env.serves(plugins, plugin_devices.served_resources([card]), {resource: 1})
        await env.opens(pod("owner", {resource: 1}))
        await env.runs("owner")

        await plugins.serve(plugin_devices.served_resources([unhealthy(card)]))

        where = "jsonpath={.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health}"
        health = ("get", "pod", "owner", "-n", env.namespace, "-o", where)
        await until(lambda: env.lab.kubectl(*health).stdout == "Unhealthy", "the pod's status", TIMEOUT)
        await env.shows({resource: 0})
        assert env.phase("owner") == "Running"
