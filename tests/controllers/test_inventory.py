"""GPUDevices and GPUNodeInventories follow what agents tell, on a real API server; names survive changes."""

from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.core_v1 import Lease, LeaseSpec, Node
from croupier.api.gpu.agent_report import CardHealth
from croupier.api.gpu.device import Cut, CutSlot, MIGType
from croupier.api.meta import ObjectMeta
from croupier.controllers.inventory.inventory import Settings
from croupier.controllers.inventory.listening import Listening
from croupier.controllers.inventory.metrics import InventoryMetrics
from croupier.controllers.inventory.reading import Look
from croupier.controllers.inventory.writing import Management
from croupier.kube.clock import SystemClock
from croupier.kube.errors import NotFound, Unreachable
from croupier.kube.store import Store
from tests.controllers import inventory_world as stocks
from tests.controllers.inventory_world import Stock, address, gfd, line, pci, report
from tests.kube.waiting import until_async

NODE = "stocked"
SYNCED = "InventorySynced"
SOON = timedelta(0)


def named(index: int, node: str = NODE) -> str:
    return f"{node}-{address(index).replace(':', '-').replace('.', '-')}"


async def until_device(stock: Stock, name: str, look: Any, what: str) -> Any:
    async def found() -> Any:
        device = (await stock.devices(NODE)).get(name)
        return device if device is not None and look(device) else None

    return await until_async(found, what, stocks.PATIENCE)


async def until_silent(stock: Stock, status: str, reason: str) -> None:
    async def look() -> bool:
        found = await stock.condition(NODE, "AgentSilent")
        return found is not None and (found.status, found.reason) == (status, reason)

    await until_async(look, f"AgentSilent to be {status}, {reason}", stocks.PATIENCE)


async def versions(stock: Stock) -> dict[str, str]:
    shown = (await stock.everything())[NODE]
    cards = {name: one.metadata.resource_version for name, one in shown.devices.items()}
    return {**cards, NODE: shown.inventory.metadata.resource_version}


async def test_all_that_an_agent_tells_stands_on_the_card(stock):
    slot = CutSlot(id="1g.10gb-0", profile="1g.10gb", start=0, size=1, uuid="MIG-1")
    told = line(
        0,
        numa_node=1,
        pcie_generation=5,
        pcie_width=16,
        types=(MIGType(name="1g.10gb", count=7, memory_mib=9728),),
        cut=Cut(enabled=True, slots=(slot,), target="1g.10gb:1"),
        health=CardHealth(healthy=False, reason="XID", message="fell off the bus", xid=79, temperature_c=61),
    )
    await stock.beat(report(NODE, told, line(1)))
    await stock.node(NODE)
    async with stock.works():
        inventory = await stock.shows(NODE, named(0), named(1))
        device = (await stock.devices(NODE))[named(0)]
        await stock.told(NODE, "GPUCardsFound")

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
    assert (inventory.status.driver.version, inventory.status.driver.toolkit_installed) == (
        "570.124.06",
        True,
    )
    assert stocks.judged(inventory, "AgentSilent") == ("False", "Heard")


async def test_a_card_that_gets_its_own_name_takes_over_what_people_said_of_it(stock):
    await stock.node(NODE, {**gfd(), **pci()})
    async with stock.works():
        by_number = [f"{NODE}-gpu-{index}" for index in range(2)]
        await stock.shows(NODE, *by_number)
        notes = {"gpu.deckhouse.io/assignment": "team-a", "gpu.deckhouse.io/drain": "repair", "mine": "no"}
        meta = {"annotations": notes, "labels": {"rack": "7"}}
        await stock.api.patch(kinds.GPU_DEVICES, by_number[1], {"metadata": meta})

        await stock.beat(report(NODE))
        await stock.shows(NODE, *by_number, named(0), named(1))
        heir = (await stock.devices(NODE))[named(1)].metadata
        assert heir.annotations == {key: notes[key] for key in notes if key != "mine"}
        assert (heir.labels["rack"], heir.labels["gpu.deckhouse.io/device-index"]) == ("7", "1")

        await stock.occupied(by_number[0], "Withdrawn")
        await stock.occupied(by_number[1], "InUse")
        await stock.shows(NODE, by_number[1], named(0), named(1))
        await stock.occupied(by_number[1], "Withdrawn")
        await stock.shows(NODE, named(0), named(1))
        await stock.told(by_number[1], "GPUCardRemoved")

        gone = {"metadata": {"annotations": {"gpu.deckhouse.io/assignment": None}}}
        await stock.api.patch(kinds.GPU_DEVICES, named(1), gone)
        await stock.beat(report(NODE, line(0, address=address(1)), line(1, address=address(0))))
        device = await until_device(
            stock,
            named(0),
            lambda one: one.metadata.labels["gpu.deckhouse.io/device-index"] == "1",
            "index 1",
        )
        assert device.metadata.annotations == {}, "what a person took away stays away"


async def test_a_card_that_is_replaced_or_renumbered_keeps_its_name(stock):
    await stock.beat(report(NODE))
    await stock.node(NODE)
    async with stock.works():
        await stock.shows(NODE, named(0), named(1))
        swapped = line(1, address=address(0), uuid="GPU-new"), line(0, address=address(1), uuid="GPU-1")
        await stock.beat(report(NODE, *swapped))
        device = await until_device(
            stock, named(0), lambda one: one.status.hardware.uuid == "GPU-new", "the other card"
        )

        assert device.metadata.labels["gpu.deckhouse.io/device-index"] == "1"
        assert set(await stock.devices(NODE)) == {named(0), named(1)}
        for reason in ("GPUCardReplaced", "GPUCardRenumbered"):
            await stock.told(named(0), reason)


async def test_a_card_that_vanished_stays_until_nobody_holds_it(stock):
    await stock.beat(report(NODE))
    await stock.node(NODE)
    async with stock.works():
        await stock.shows(NODE, named(0), named(1))
        await stock.occupied(named(1), "InUse")
        await stock.beat(report(NODE, line(0)))

        def is_gone(device: Any) -> bool:
            return any(one.type == "Vanished" for one in device.status.conditions)

        device = await until_device(stock, named(1), is_gone, "the card to be marked")
        assert device.status.health.last_error_reason == "Vanished"
        assert {one.type for one in device.status.conditions} == {"Occupied", "Vanished"}
        await stock.told(named(1), "GPUCardVanished")

        await stock.beat(report(NODE))
        await until_device(stock, named(1), lambda one: not is_gone(one), "the card to be back")
        await stock.told(named(1), "GPUCardReturned")

        await stock.beat(report(NODE, line(0)))
        await until_device(stock, named(1), is_gone, "the card to be marked again")
        await stock.occupied(named(1), "Withdrawn")
        inventory = await stock.shows(NODE, named(0))
        assert [one.inventory_id for one in inventory.status.hw.devices] == [named(0)]


async def test_an_agent_that_is_not_heard_is_silent_until_it_is(stock):
    impatient = Settings(patience=1.0, gone=SOON)
    told = report(NODE)
    await stock.beat(told)
    await stock.node(NODE)
    async with stock.works(impatient):
        await stock.shows(NODE, named(0), named(1))
        await until_silent(stock, "True", "NoHeartbeat")
        await stock.told(NODE, "GPUAgentSilent")
        await stock.beat(told)
        await until_silent(stock, "False", "Heard")
        await until_silent(stock, "True", "NoHeartbeat")

    async with stock.works(Settings(patience=3600.0)):
        await stock.relabel(NODE, {"looked": "at"})
        await stock.shows(NODE, named(0), named(1))
        await until_silent(stock, "True", "NoHeartbeat")
        await stock.beat(told)
        await until_silent(stock, "False", "Heard")
        await stock.api.delete(kinds.LEASES, f"gpu-node-{NODE}", namespace=stock.namespace)
        await until_silent(stock, "False", "NoAgent")


async def test_heartbeats_that_tell_nothing_new_write_nothing(stock):
    def warm(degrees: int, watts: str, beats: int = 3) -> CardHealth:
        return CardHealth(temperature_c=degrees, clean=beats, metrics={"power": watts})

    await stock.beat(report(NODE, line(0, health=warm(40, "300")), line(1)))
    await stock.node(NODE)
    async with stock.works():
        await stock.shows(NODE, named(0), named(1))
        before = await versions(stock)
        for watts in ("310", "320", "330"):
            await stock.beat(report(NODE, line(0, health=warm(43, watts)), line(1)))
        await stock.beat(report(NODE, line(0), line(1, health=warm(55, "200"))))
        await until_device(stock, named(1), lambda one: one.status.health.temperature_c == 55, "55 degrees")
        after = await versions(stock)

        changed = {name for name in before if before[name] != after[name]}
        assert changed == {named(1)}


async def test_what_others_write_of_the_card_stays(stock):
    await stock.beat(report(NODE))
    await stock.node(NODE)
    async with stock.works():
        await stock.shows(NODE, named(0), named(1))
        theirs = {"state": "Unassigned", "phase": "Ready", "autoAttach": True}
        await stock.api.apply(
            kinds.GPU_DEVICES,
            {"metadata": {"name": named(0)}, "status": theirs},
            field_manager="gpupool-controller",
            subresource="status",
        )
        await stock.occupied(named(0), "Free")
        await stock.beat(report(NODE, line(0, health=CardHealth(xid=13, clean=0)), line(1)))
        device = await until_device(stock, named(0), lambda one: one.status.health.xid == 13, "the XID")

        assert (device.status.phase, device.status.auto_attach) == ("Ready", True)
        assert [one.type for one in device.status.conditions] == ["Occupied"]


MANAGED = {
    "unless told otherwise": (Management(), {}, True),
    "not if its label says so": (Management(), {"gpu.deckhouse.io/enabled": "false"}, False),
    "only if told, where that is the rule": (Management(by_default=False), {}, False),
    "if told": (Management(label="own", by_default=False), {"own": "true"}, True),
}


@pytest.mark.parametrize(("management", "labels", "managed"), MANAGED.values(), ids=MANAGED)
async def test_a_node_is_managed(stock, management, labels, managed):
    await stock.node(NODE, {**gfd(), **pci(), **labels})
    async with stock.works(Settings(management=management)):
        inventory = await stock.shows(NODE, *(f"{NODE}-gpu-{index}" for index in range(2)))
        device = (await stock.devices(NODE))[f"{NODE}-gpu-0"]

        assert device.status.managed is managed
        assert stocks.judged(inventory, "ManagedDisabled")[0] == ("False" if managed else "True")


async def test_a_card_half_written_by_one_who_was_stopped_is_finished(stock):
    labels = {"gpu.deckhouse.io/node": NODE, "gpu.deckhouse.io/device-index": "0"}
    await stock.beat(report(NODE, line(0)))
    await stock.node(NODE)
    await stock.api.create(kinds.GPU_DEVICES, {"metadata": {"name": named(0), "labels": labels}})
    async with stock.works():
        await stock.shows(NODE, named(0))
        device = await until_device(stock, named(0), lambda one: one.metadata.owner_references, "its owner")

        assert device.status.hardware.uuid == "GPU-0"


async def test_figures_come_and_go_with_the_node(stock):
    await stock.beat(report(NODE))
    await stock.node(NODE)
    devices, inventories = Store(kinds.GPU_DEVICES), Store(kinds.GPU_NODE_INVENTORIES)
    registry = CollectorRegistry()
    InventoryMetrics(registry, devices, inventories)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"gpu_inventory_{name}", {"node": NODE, **labels})

    async with stock.works():
        inventories.put(await stock.shows(NODE, named(0), named(1)))
        for device in (await stock.devices(NODE)).values():
            devices.put(device)

    assert value("devices_total") == 2
    assert (value("devices_state", state="Unassigned"), value("devices_state", state="Faulted")) == (2, 0)
    assert value("condition", condition="InventoryIncomplete") == 0
    for store in (devices, inventories):
        for key in tuple(store.keys()):
            store.remove(key)
    assert value("devices_total") is None
    assert value("condition", condition="InventoryIncomplete") is None


async def test_an_agent_that_corrects_its_labels_after_its_report_raises_no_alarm(stock):
    await stock.beat(report(NODE))
    await stock.node(NODE, {**gfd(), **pci()})
    async with stock.works(Settings(second_look=3600.0)):
        before = stocks.condition(await stock.shows(NODE, named(0), named(1)), "InventoryIncomplete")
        await stock.beat(report(NODE, line(0)))
        await until_device(stock, named(1), lambda one: one.status.conditions, "the card to be marked")
        await stock.relabel(NODE, {**dict.fromkeys(pci()), **gfd(count=1), **pci(count=1)})
        await stock.relabel(NODE, {"gpu.deckhouse.io/enabled": "false"})

        async def seen() -> bool:
            found = await stock.condition(NODE, "ManagedDisabled")
            return found is not None and found.status == "True"

        await until_async(seen, "the last change", stocks.PATIENCE)
        assert await stock.condition(NODE) == before
        assert "GPUNodeFeatureMissing" not in await stock.events(NODE)


async def test_what_stays_wrong_is_said_at_the_second_look(stock):
    await stock.node(NODE, {**gfd(), **pci()})
    cards = [f"{NODE}-gpu-{index}" for index in range(2)]
    async with stock.works(Settings(second_look=0.3)):
        await stock.shows(NODE, *cards)
        await stock.relabel(NODE, {"nvidia.com/gpu.memory": "lots"})
        await stock.shows(NODE, *cards, reason="NodeFeatureMissing")


class Hand(SystemClock):
    """A clock moved by hand."""

    time = 0.0

    def monotonic(self) -> float:
        return self.time


def lease(sign: str) -> Lease:
    return Lease(metadata=ObjectMeta(name="a", namespace="b"), spec=LeaseSpec(renew_time=sign))


DIRECTLY = {
    "the Lease has not changed": (lease("1"), 0.0, True),
    "the watch was behind": (lease("2"), 0.0, False),
    "the answer took long": (lease("1"), 9.0, False),
    "the Lease is gone": (NotFound(404, "NotFound", "no such Lease"), 0.0, None),
    "nobody answers": (Unreachable("away"), 0.0, Unreachable),
}


@pytest.mark.parametrize(("answer", "seconds", "silent"), DIRECTLY.values(), ids=DIRECTLY)
async def test_an_agent_is_looked_at_directly_before_it_is_called_silent(answer, seconds, silent):
    clock, node = Hand(), Node(metadata=ObjectMeta(name=NODE))
    look = Look(node, lease("1"), None, (), {}, None)

    async def read(_seen: Lease) -> Lease:
        clock.time += seconds
        if not isinstance(answer, Lease):
            raise answer
        return answer

    listening = Listening(read, clock, 40.0)

    assert await listening.silent(look) is False
    clock.time = 41.0
    if silent is Unreachable:
        with pytest.raises(Unreachable):
            await listening.silent(look)
        assert listening.left(NODE) == 40.0, "it gets its time anew"
        return
    assert await listening.silent(look) is silent
    assert (listening.left(NODE) == 0.0) == (silent is not False)
