"""Conversion of GPUDevices and GPUPools for the core, and round trips of allocations."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_pool
from croupier.api.gpu.pool import PoolAllocation
from croupier.core.model.sharing import ReportedLayout, Sharing
from croupier.core.pods.scheduler_filters import LabelRequirement
from croupier.core.pools.selection import LabelMatch

NOW = "2026-01-01T00:00:00Z"


def condition(kind: str, status: str, reason: str = "Test", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


def device(annotations: dict[str, str] | None = None, **status: Any) -> GPUDevice:
    labels = {"gpu.deckhouse.io/device-index": "3", "tier": "gold"}
    meta = {"name": "node-1-0000-65-00-0", "labels": labels, "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta, "status": status}, GPUDevice)


def pool(**spec: Any) -> GPUPool:
    meta = {"name": "team-a", "creationTimestamp": NOW}
    body = {"metadata": meta, "spec": {"allocation": {"mode": "Exclusive"}, **spec}}
    return msgspec.convert(body, GPUPool)


def inventory(*conditions: dict[str, str]) -> GPUNodeInventory:
    return msgspec.convert(
        {"metadata": {"name": "node-1"}, "status": {"conditions": conditions}}, GPUNodeInventory
    )


HARDWARE = {
    "product": "H100",
    "pci": {"vendor": "10de", "device": "2330", "class": "0302", "address": "0000:65:00.0"},
    "mig": {"capable": True, "types": [{"name": "1g.10gb", "count": 7}], "profilesSupported": ["2g.20gb"]},
}


def test_a_card_is_converted_with_all_selector_fields():
    words = {"gpu.deckhouse.io/assignment": "team-a", "gpu.deckhouse.io/drain": "later"}
    busy = condition("Occupied", "True", "InUse")

    found = convert_pool.card(device(words, hardware=HARDWARE, poolRef={"name": "team-b"}, conditions=[busy]))

    assert (found.id, found.traits.index, found.traits.pci) == ("node-1-0000-65-00-0", 3, "10de/2330")
    assert found.traits.profiles == {"1g.10gb", "2g.20gb"}
    assert (found.annotation, found.pool, found.drained, found.busy) == ("team-a", "team-b", True, True)
    assert (found.mig.known, found.excluded) == (True, False)
    assert convert_pool.card(device(managed=False)).excluded


def test_the_profiles_of_a_card_known_only_by_labels_are_unknown():
    labelled = {"product": "H100", "mig": {"capable": True}}

    assert not convert_pool.card(device(hardware=labelled)).mig.known
    assert convert_pool.card(device(hardware={"product": "T4", "mig": {"capable": False}})).mig.known


def test_a_pool_is_converted_with_its_selectors():
    expression = {"key": "zone", "operator": "In", "values": ["a"]}

    found = convert_pool.pool(
        pool(
            nodeSelector={"matchExpressions": [expression]},
            deviceSelector={"include": {"indexes": ["0-1", "3"]}, "exclude": {"products": ["T4"]}},
            deviceAssignment={"requireAnnotation": False, "autoApproveSelector": {"matchLabels": {"x": "y"}}},
            allocation={"mode": "MIG", "migProfile": "1g.10gb", "maxDevicesPerNode": 2},
        )
    )

    assert found.nodes == LabelMatch({}, (LabelRequirement("zone", "In", ("a",)),))
    assert found.devices.include.indexes == ((0, 1), (3, 3))
    assert found.devices.exclude.products == {"T4"}
    assert (found.auto_assign_all, found.auto_assign_selector, found.max_per_node) == (
        True,
        LabelMatch({"x": "y"}),
        2,
    )
    assert found.sharing == Sharing("MIG", profile="1g.10gb")
    assert found.resource == "gpu.deckhouse.io/team-a"
    assert found.created == datetime(2026, 1, 1, tzinfo=UTC)


COMPLETE = condition("InventoryIncomplete", "False")
READY = condition("ReadyForPooling", "True")

OBSTACLES = {
    "none": (device(conditions=[READY]), inventory(COMPLETE), ""),
    "no inventory": (device(), None, "its node has no GPUNodeInventory yet"),
    "an incomplete inventory": (
        device(conditions=[READY]),
        inventory(condition("InventoryIncomplete", "True", "NodeFeatureMissing", "product is missing")),
        "the inventory of its node is incomplete: product is missing",
    ),
    "a fault": (
        device(state="Faulted", health={"lastError": "XID 79"}, conditions=[READY]),
        inventory(COMPLETE),
        "it is faulted: XID 79",
    ),
    "not checked": (device(), inventory(COMPLETE), "it has not been checked yet"),
    "not ready": (
        device(conditions=[condition("ReadyForPooling", "False", "DriverNotReady")]),
        inventory(COMPLETE),
        "it is not ready for pooling: DriverNotReady",
    ),
}


@pytest.mark.parametrize(("card", "node", "why"), OBSTACLES.values(), ids=OBSTACLES)
def test_why_a_card_cannot_join_a_pool(card: GPUDevice, node: GPUNodeInventory | None, why: str):
    assert convert_pool.obstacle(card, node) == why


ALLOCATIONS = {
    "whole cards": ({"mode": "Exclusive"}, Sharing("Exclusive")),
    "percent": ({"mode": "MPS", "maxDevicesPerNode": 2}, Sharing("MPS", enforcement="MPS")),
    "percent that nothing enforces": (
        {"mode": "MPS", "enforcement": "None"},
        Sharing("MPS", enforcement="None"),
    ),
    "slices": ({"mode": "TimeSlice", "timeSlice": {"maxSlicesPerDevice": 4}}, Sharing("TimeSlice", slices=4)),
    "default slices": ({"mode": "TimeSlice"}, Sharing("TimeSlice", slices=8)),
    "a profile": ({"mode": "MIG", "migProfile": "1g.10gb"}, Sharing("MIG", profile="1g.10gb")),
    "a layout, in any order": (
        {
            "mode": "MIG",
            "migLayout": [{"profile": "3g.30gb", "count": 1}, {"profile": "2g.20gb", "count": 2}],
        },
        Sharing("MIG", layout=(("2g.20gb", 2), ("3g.30gb", 1))),
    ),
}


@pytest.mark.parametrize(("written", "sharing"), ALLOCATIONS.values(), ids=ALLOCATIONS)
def test_an_allocation_round_trips_through_its_sharing(written: dict[str, Any], sharing: Sharing):
    allocation = msgspec.convert(written, PoolAllocation)
    other = PoolAllocation(mode="Exclusive", max_devices_per_node=3, rollout="PerCard")

    assert convert_pool.sharing(allocation) == sharing
    assert convert_pool.allocation_for(sharing, allocation) is allocation
    again = convert_pool.allocation_for(sharing, other)
    assert convert_pool.sharing(again) == sharing
    assert (again.max_devices_per_node, again.rollout) == (3, "PerCard")
    assert convert_pool.decode_allocation(convert_pool.encode_allocation(allocation)) == allocation


def test_a_card_has_its_own_allocation_only_if_its_annotation_is_valid():
    own = convert_pool.card_allocation(device({convert_pool.CARD_ALLOCATION: '{"mode":"TimeSlice"}'}))

    assert own == PoolAllocation(mode="TimeSlice")
    assert convert_pool.card_allocation(device()) is None
    assert convert_pool.card_allocation(device({convert_pool.CARD_ALLOCATION: "nonsense"})) is None


def test_partitioning_is_converted_to_profiles_and_capacity_comes_from_the_hardware():
    slots = [{"id": f"1g.10gb-{n}", "profile": "1g.10gb", "start": n, "size": 1} for n in range(2)]
    found = device(hardware=HARDWARE, cut={"slots": slots, "state": "Failed", "target": "1g.10gb:7"})

    assert convert_pool.partitioning(found) == ReportedLayout("Failed", {"1g.10gb": 2}, "1g.10gb:7")
    assert convert_pool.partitioning(device()) is None
    assert convert_pool.mig_capacity(found) == {"1g.10gb": 7}
