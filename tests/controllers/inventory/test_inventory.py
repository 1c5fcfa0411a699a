"""The inventory controller on a real API server: objects follow agent reports, and names are stable."""

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.core_v1 import Lease, LeaseSpec
from croupier.api.gpu.agent_report import ReportedHealth
from croupier.api.gpu.device import (
    NODE_LABEL,
    DeviceEnforcement,
    DevicePartition,
    DevicePartitioning,
    MIGType,
)
from croupier.api.meta import ObjectMeta
from croupier.api.withheld import WithheldCard
from croupier.controllers.inventory.desired_status import NodeManagement
from croupier.controllers.inventory.inventory import InventoryOptions
from croupier.controllers.inventory.metrics import InventoryMetrics
from croupier.controllers.shared.agent_liveness import AgentLiveness
from croupier.core.model import card_name
from croupier.core.model.withheld import WithheldState
from croupier.kube.cache.store import Store
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.errors import NotFound, Unreachable
from tests.controllers import inventory_env as inventory_envs
from tests.controllers.inventory_env import InventoryEnv, address, gfd, line, pci, report
from tests.polling import until_async

NODE = "stocked"
SYNCED = "InventorySynced"
SOON = timedelta(0)
ENFORCED = DeviceEnforcement(by="MPSClient", ready=False, message="its MPS daemon is starting")


def named(index: int, node: str = NODE) -> str:
    return f"{node}-{address(index).replace(':', '-').replace('.', '-')}"


async def until_device(inventory_env: InventoryEnv, name: str, matches: Any, what: str) -> Any:
    async def found() -> Any:
        device = (await inventory_env.devices(NODE)).get(name)
        return device if device is not None and matches(device) else None

    return await until_async(found, what, inventory_envs.TIMEOUT)


async def until_silent(inventory_env: InventoryEnv, status: str, reason: str) -> None:
    async def reached() -> bool:
        found = await inventory_env.condition(NODE, "AgentSilent")
        return found is not None and (found.status, found.reason) == (status, reason)

    await until_async(reached, f"AgentSilent to be {status}, {reason}", inventory_envs.TIMEOUT)


async def versions(inventory_env: InventoryEnv) -> dict[str, str]:
    shown = (await inventory_env.everything())[NODE]
    cards = {name: device.metadata.resource_version for name, device in shown.devices.items()}
    return {**cards, NODE: shown.inventory.metadata.resource_version}


async def test_a_node_with_a_long_name_has_cards(inventory_env):
    node = "n" * 249
    await inventory_env.beat(report(node, line(0), line(1)))
    await inventory_env.node(node)
    async with inventory_env.works():
        names = [card_name.inventory_id(node, address(index)) for index in (0, 1)]
        inventory = await inventory_env.shows(node, *names)
        devices = await inventory_env.devices(node)

    assert [device.status.node_name for device in devices.values()] == [node, node]
    assert all(len(device.metadata.labels[NODE_LABEL]) <= 63 for device in devices.values())
    assert inventory.status.hw.present


async def test_the_card_shows_everything_that_the_agent_reports(inventory_env):
    slot = DevicePartition(id="1g.10gb-0", profile="1g.10gb", start=0, size=1, uuid="MIG-1")
    told = line(
        0,
        numa_node=1,
        pcie_generation=5,
        pcie_width=16,
        types=(MIGType(name="1g.10gb", count=7, memory_mib=9728),),
        cut=DevicePartitioning(enabled=True, slots=(slot,), target="1g.10gb:1"),
        health=ReportedHealth(
            healthy=False, reason="XID", message="fell off the bus", xid=79, temperature_c=61
        ),
        idle_since=datetime(2026, 1, 1, tzinfo=UTC),
        strangers=("process python",),
        enforcement=ENFORCED,
    )
    await inventory_env.beat(report(NODE, told, line(1)))
    await inventory_env.node(NODE)
    async with inventory_env.works():
        inventory = await inventory_env.shows(NODE, named(0), named(1))
        device = (await inventory_env.devices(NODE))[named(0)]
        await inventory_env.has_event(NODE, "GPUCardsFound")

    (owner,) = device.metadata.owner_references
    assert (owner.kind, owner.name) == ("Node", NODE)
    status, hardware = device.status, device.status.hardware
    assert (status.node_name, status.inventory_id, status.managed) == (NODE, named(0), True)
    assert hardware.pci.address == address(0)
    assert (hardware.uuid, hardware.numa_node, hardware.pcie.width) == ("GPU-0", 1, 16)
    assert "fp8" in hardware.precision.supported
    assert hardware.mig.types[0].count == 7
    assert status.cut.slots == (slot,)
    assert (status.health.xid, status.health.last_error) == (79, "fell off the bus")
    assert status.health.last_error_time is not None
    assert (status.idle_since, status.strangers) == (datetime(2026, 1, 1, tzinfo=UTC), ("process python",))
    assert status.enforcement == ENFORCED
    assert (inventory.status.driver.version, inventory.status.driver.toolkit_installed) == (
        "570.124.06",
        True,
    )
    assert inventory_envs.condition_status(inventory, "AgentSilent") == ("False", "Heard")


async def test_the_enforcement_of_a_card_follows_the_agent(inventory_env):
    ready = DeviceEnforcement(by="MPSClient", ready=True, message="the MPS daemon limits its clients")
    await inventory_env.node(NODE)
    async with inventory_env.works():
        for enforcement in (ENFORCED, ready, None):
            await inventory_env.beat(report(NODE, line(0, enforcement=enforcement)))
            await until_device(
                inventory_env,
                named(0),
                lambda device, expected=enforcement: (
                    bool(device.status.node_name) and device.status.enforcement == expected
                ),
                f"the enforcement {enforcement}",
            )


async def test_a_replaced_gpudevice_passes_on_user_annotations(inventory_env):
    await inventory_env.node(NODE, {**gfd(), **pci()})
    async with inventory_env.works():
        by_number = [f"{NODE}-gpu-{index}" for index in range(2)]
        await inventory_env.shows(NODE, *by_number)
        notes = {"gpu.deckhouse.io/assignment": "team-a", "gpu.deckhouse.io/drain": "repair", "mine": "no"}
        meta = {"annotations": notes, "labels": {"rack": "7"}}
        await inventory_env.api.patch(kinds.GPU_DEVICES, by_number[1], {"metadata": meta})

        await inventory_env.beat(report(NODE))
        await inventory_env.shows(NODE, *by_number, named(0), named(1))
        replacement = (await inventory_env.devices(NODE))[named(1)].metadata
        assert replacement.annotations == {key: notes[key] for key in notes if key != "mine"}
        assert (replacement.labels["rack"], replacement.labels["gpu.deckhouse.io/device-index"]) == ("7", "1")

        await inventory_env.occupied(by_number[0], "Withdrawn")
        await inventory_env.occupied(by_number[1], "InUse")
        await inventory_env.shows(NODE, by_number[1], named(0), named(1))
        await inventory_env.occupied(by_number[1], "Withdrawn")
        await inventory_env.shows(NODE, named(0), named(1))
        await inventory_env.has_event(by_number[1], "GPUCardRemoved")

        gone = {"metadata": {"annotations": {"gpu.deckhouse.io/assignment": None}}}
        await inventory_env.api.patch(kinds.GPU_DEVICES, named(1), gone)
        await inventory_env.beat(report(NODE, line(0, address=address(1)), line(1, address=address(0))))
        device = await until_device(
            inventory_env,
            named(0),
            lambda device: device.metadata.labels["gpu.deckhouse.io/device-index"] == "1",
            "index 1",
        )
        assert device.metadata.annotations == {}, "an annotation that a user removed stays removed"


async def test_a_replaced_or_renumbered_card_keeps_its_name(inventory_env):
    await inventory_env.beat(report(NODE))
    await inventory_env.node(NODE)
    async with inventory_env.works():
        await inventory_env.shows(NODE, named(0), named(1))
        swapped = line(1, address=address(0), uuid="GPU-new"), line(0, address=address(1), uuid="GPU-1")
        await inventory_env.beat(report(NODE, *swapped))
        device = await until_device(
            inventory_env, named(0), lambda device: device.status.hardware.uuid == "GPU-new", "the other card"
        )

        assert device.metadata.labels["gpu.deckhouse.io/device-index"] == "1"
        assert set(await inventory_env.devices(NODE)) == {named(0), named(1)}
        for reason in ("GPUCardReplaced", "GPUCardRenumbered"):
            await inventory_env.has_event(named(0), reason)


async def test_a_vanished_card_stays_while_it_is_held(inventory_env):
    await inventory_env.beat(report(NODE))
    await inventory_env.node(NODE)
    async with inventory_env.works():
        await inventory_env.shows(NODE, named(0), named(1))
        await inventory_env.occupied(named(1), "InUse")
        await inventory_env.beat(report(NODE, line(0)))

        def is_gone(device: Any) -> bool:
            return any(cond.type == "Vanished" for cond in device.status.conditions)

        device = await until_device(inventory_env, named(1), is_gone, "the card to be marked")
        assert device.status.health.last_error_reason == "Vanished"
        assert {cond.type for cond in device.status.conditions} == {"Occupied", "Vanished"}
        await inventory_env.has_event(named(1), "GPUCardVanished")

        await inventory_env.beat(report(NODE))
        await until_device(inventory_env, named(1), lambda device: not is_gone(device), "the card to be back")
        await inventory_env.has_event(named(1), "GPUCardReturned")

        await inventory_env.beat(report(NODE, line(0)))
        await until_device(inventory_env, named(1), is_gone, "the card to be marked again")
        await inventory_env.occupied(named(1), "Withdrawn")
        inventory = await inventory_env.shows(NODE, named(0))
        assert [device.inventory_id for device in inventory.status.hw.devices] == [named(0)]


async def test_an_agent_without_heartbeats_is_silent_until_the_next_one(inventory_env):
    options = InventoryOptions(timeout=1.0, removal_delay=SOON)
    told = report(NODE)
    await inventory_env.beat(told)
    await inventory_env.node(NODE)
    async with inventory_env.works(options):
        await inventory_env.shows(NODE, named(0), named(1))
        await until_silent(inventory_env, "True", "NoHeartbeat")
        await inventory_env.has_event(NODE, "GPUAgentSilent")
        await inventory_env.beat(told)
        await until_silent(inventory_env, "False", "Heard")
        await until_silent(inventory_env, "True", "NoHeartbeat")

    async with inventory_env.works(InventoryOptions(timeout=3600.0)):
        await inventory_env.relabel(NODE, {"changed": "true"})
        await inventory_env.shows(NODE, named(0), named(1))
        await until_silent(inventory_env, "True", "NoHeartbeat")
        await inventory_env.beat(told)
        await until_silent(inventory_env, "False", "Heard")
        await inventory_env.api.delete(kinds.LEASES, f"gpu-node-{NODE}", namespace=inventory_env.namespace)
        await until_silent(inventory_env, "False", "NoAgent")


async def test_heartbeats_without_news_write_nothing(inventory_env):
    def warm(degrees: int, watts: str, beats: int = 3) -> ReportedHealth:
        return ReportedHealth(temperature_c=degrees, clean=beats, metrics={"power": watts})

    await inventory_env.beat(report(NODE, line(0, health=warm(40, "300")), line(1)))
    await inventory_env.node(NODE)
    async with inventory_env.works():
        await inventory_env.shows(NODE, named(0), named(1))
        before = await versions(inventory_env)
        for watts in ("310", "320", "330"):
            await inventory_env.beat(report(NODE, line(0, health=warm(43, watts)), line(1)))
        await inventory_env.beat(report(NODE, line(0), line(1, health=warm(55, "200"))))
        await until_device(
            inventory_env, named(1), lambda device: device.status.health.temperature_c == 55, "55 degrees"
        )
        after = await versions(inventory_env)

        changed = {name for name in before if before[name] != after[name]}
        assert changed == {named(1)}


async def test_the_inventory_names_the_generation_that_was_read(inventory_env):
    await inventory_env.beat(report(NODE))
    await inventory_env.node(NODE)
    async with inventory_env.works():
        inventory = await inventory_env.shows(NODE, named(0), named(1))

    assert inventory.metadata.generation == 1
    assert inventory.status.observed_generation == 1
    assert {(cond.type, cond.observed_generation) for cond in inventory.status.conditions} == {
        ("AgentSilent", 1),
        ("InventoryIncomplete", 1),
        ("ManagedDisabled", 1),
    }


async def test_fields_of_other_controllers_stay(inventory_env):
    await inventory_env.beat(report(NODE))
    await inventory_env.node(NODE)
    async with inventory_env.works():
        await inventory_env.shows(NODE, named(0), named(1))
        theirs = {"state": "Unassigned", "phase": "Ready", "autoAttach": True}
        await inventory_env.api.apply(
            kinds.GPU_DEVICES,
            {"metadata": {"name": named(0)}, "status": theirs},
            field_manager="gpupool-controller",
            subresource="status",
        )
        await inventory_env.occupied(named(0), "Free")
        await inventory_env.beat(report(NODE, line(0, health=ReportedHealth(xid=13, clean=0)), line(1)))
        device = await until_device(
            inventory_env, named(0), lambda device: device.status.health.xid == 13, "the XID"
        )

        assert (device.status.phase, device.status.auto_attach) == ("Ready", True)
        assert [cond.type for cond in device.status.conditions] == ["Occupied"]


MANAGED = {
    "by default": (NodeManagement(), {}, True),
    "not with the label false": (NodeManagement(), {"gpu.deckhouse.io/enabled": "false"}, False),
    "not without a label, if the default is off": (NodeManagement(by_default=False), {}, False),
    "with the label, if the default is off": (
        NodeManagement(label="own", by_default=False),
        {"own": "true"},
        True,
    ),
}


@pytest.mark.parametrize(("management", "labels", "managed"), MANAGED.values(), ids=MANAGED)
async def test_managed_nodes(inventory_env, management, labels, managed):
    await inventory_env.node(NODE, {**gfd(), **pci(), **labels})
    async with inventory_env.works(InventoryOptions(management=management)):
        inventory = await inventory_env.shows(NODE, *(f"{NODE}-gpu-{index}" for index in range(2)))
        device = (await inventory_env.devices(NODE))[f"{NODE}-gpu-0"]

        assert device.status.managed is managed
        assert inventory_envs.condition_status(inventory, "ManagedDisabled")[0] == (
            "False" if managed else "True"
        )


async def test_a_partly_created_gpudevice_is_completed(inventory_env):
    labels = {"gpu.deckhouse.io/node": NODE, "gpu.deckhouse.io/device-index": "0"}
    await inventory_env.beat(report(NODE, line(0)))
    await inventory_env.node(NODE)
    await inventory_env.api.create(kinds.GPU_DEVICES, {"metadata": {"name": named(0), "labels": labels}})
    async with inventory_env.works():
        await inventory_env.shows(NODE, named(0))
        device = await until_device(
            inventory_env, named(0), lambda device: device.metadata.owner_references, "its owner"
        )

        assert device.status.hardware.uuid == "GPU-0"


async def test_metrics_follow_the_node(inventory_env):
    await inventory_env.beat(report(NODE))
    await inventory_env.node(NODE)
    devices, inventories = Store(kinds.GPU_DEVICES), Store(kinds.GPU_NODE_INVENTORIES)
    registry = CollectorRegistry()
    InventoryMetrics(registry, devices, inventories)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"gpu_inventory_{name}", {"node": NODE, **labels})

    def withheld() -> list[float | None]:
        name = "croupier_inventory_withheld_cards"
        reasons = get_args(WithheldState)
        return [registry.get_sample_value(name, {"node": NODE, "reason": reason}) for reason in reasons]

    async with inventory_env.works():
        inventories.put(await inventory_env.shows(NODE, named(0), named(1)))
        for device in (await inventory_env.devices(NODE)).values():
            devices.put(device)

    assert value("devices_total") == 2
    assert (value("devices_state", state="Unassigned"), value("devices_state", state="Faulted")) == (2, 0)
    assert value("condition", condition="InventoryIncomplete") == 0
    assert withheld() == [0, 0, 0, 0]
    (device, *_) = devices
    drained = structs.replace(device.status, withheld=WithheldCard(state="Drained", reason="fan"))
    newer = structs.replace(device.metadata, resource_version="999999999999")
    devices.put(structs.replace(device, metadata=newer, status=drained))
    assert withheld() == [1, 0, 0, 0]
    for store in (devices, inventories):
        for key in tuple(store.keys()):
            store.remove(key)
    assert value("devices_total") is None
    assert value("condition", condition="InventoryIncomplete") is None


async def test_labels_corrected_after_the_report_raise_no_alert(inventory_env):
    await inventory_env.beat(report(NODE))
    await inventory_env.node(NODE, {**gfd(), **pci()})
    async with inventory_env.works(InventoryOptions(confirmation_delay=3600.0)):
        before = inventory_envs.condition(
            await inventory_env.shows(NODE, named(0), named(1)), "InventoryIncomplete"
        )
        await inventory_env.beat(report(NODE, line(0)))
        await until_device(
            inventory_env, named(1), lambda device: device.status.conditions, "the card to be marked"
        )
        await inventory_env.relabel(NODE, {**dict.fromkeys(pci()), **gfd(count=1), **pci(count=1)})
        await inventory_env.relabel(NODE, {"gpu.deckhouse.io/enabled": "false"})

        async def seen() -> bool:
            found = await inventory_env.condition(NODE, "ManagedDisabled")
            return found is not None and found.status == "True"

        await until_async(seen, "the last change", inventory_envs.TIMEOUT)
        assert await inventory_env.condition(NODE) == before
        assert "GPUNodeFeatureMissing" not in await inventory_env.events(NODE)


async def test_a_lasting_trouble_is_reported_after_the_confirmation_delay(inventory_env):
    await inventory_env.node(NODE, {**gfd(), **pci()})
    cards = [f"{NODE}-gpu-{index}" for index in range(2)]
    async with inventory_env.works(InventoryOptions(confirmation_delay=0.3)):
        await inventory_env.shows(NODE, *cards)
        await inventory_env.relabel(NODE, {"nvidia.com/gpu.memory": "lots"})
        await inventory_env.shows(NODE, *cards, reason="NodeFeatureMissing")


class ManualClock(SystemClock):
    """A clock that is set by the test."""

    time = 0.0

    def monotonic(self) -> float:
        return self.time


def lease(sign: str) -> Lease:
    return Lease(metadata=ObjectMeta(name="a", namespace="b"), spec=LeaseSpec(renew_time=sign))


DIRECTLY = {
    "the Lease has not changed": (lease("1"), 0.0, True),
    "the informer is stale": (lease("2"), 0.0, False),
    "the response is slow": (lease("1"), 9.0, False),
    "the Lease is gone": (NotFound(404, "NotFound", "no such Lease"), 0.0, None),
    "the API server is unreachable": (Unreachable("away"), 0.0, Unreachable),
}


@pytest.mark.parametrize(("answer", "seconds", "silent"), DIRECTLY.values(), ids=DIRECTLY)
async def test_the_lease_is_read_directly_before_an_agent_is_silent(answer, seconds, silent):
    clock = ManualClock()

    async def read(_seen: Lease) -> Lease:
        clock.time += seconds
        if not isinstance(answer, Lease):
            raise answer
        return answer

    liveness = AgentLiveness(read, clock, 40.0)

    assert await liveness.silent(NODE, lease("1")) is False
    clock.time = 41.0
    if silent is Unreachable:
        with pytest.raises(Unreachable):
            await liveness.silent(NODE, lease("1"))
        assert liveness.left(NODE) == 40.0, "it gets the full timeout again"
        return
    assert await liveness.silent(NODE, lease("1")) is silent
    assert (liveness.left(NODE) == 0.0) == (silent is not False)
