"""Conversion of a node's objects: why cards are withheld, how pools share, which changes are written."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from croupier.api import nfd
from croupier.api.gpu import GPUDevice, GPUPool, convert_inventory, convert_node
from croupier.api.gpu.agent_report import ReportedHealth
from croupier.api.gpu.device import (
    DeclinedPool,
    DeviceHealth,
    DevicePartitioning,
    GPUDeviceStatus,
    PoolReference,
)
from croupier.api.gpu.pool import GPUPoolSpec, GPUPoolStatus, PoolAllocation
from croupier.api.meta import Condition, ObjectMeta
from croupier.api.nfd import (
    FeatureInstance,
    FeatureInstanceSet,
    NodeFeature,
    NodeFeatureInstances,
    NodeFeatureSpec,
)
from croupier.core.model.withheld import Withheld

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


def condition(kind: str, reason: str = "So", status: str = "True") -> Condition:
    return Condition(type=kind, status=status, reason=reason, last_transition_time=NOON)  # type: ignore[arg-type]  # True or False


def device(
    pool: str = "",
    cut: DevicePartitioning | None = None,
    gone: bool = False,
    declined: str = "",
    **annotations: str,
) -> GPUDevice:
    notes = {f"gpu.deckhouse.io/{key}": value for key, value in annotations.items()}
    status = GPUDeviceStatus(
        cut=cut,
        pool_ref=PoolReference(name=pool) if pool else None,
        declined=DeclinedPool(name=declined, reason="Declined") if declined else None,
        conditions=(condition("Vanished"),) if gone else (),
    )
    return GPUDevice(metadata=ObjectMeta(name="card", annotations=notes), status=status)


def set_aside(plain: GPUDevice) -> GPUDevice:
    """The card with the label that retires it."""
    labels = {"gpu.deckhouse.io/ignore": "true"}
    return structs.replace(plain, metadata=structs.replace(plain.metadata, labels=labels))


WITHHELD = {
    "not a card without a pool": (device(), None),
    "not a card in its pool": (device(pool="a", assignment="a"), None),
    "not a card with the requested layout": (device(cut=DevicePartitioning(target="whole")), None),
    "drained": (device(drain="swap the fan"), Withheld("Drained", "swap the fan")),
    "drained without a reason": (device(drain=""), Withheld("Drained")),
    "drained for a reason of many lines": (
        device(drain="a fan\n  rattles\n"),
        Withheld("Drained", "a fan rattles"),
    ),
    "drained for a reason without end": (device(drain="x" * 999), Withheld("Drained", "x" * 199 + "…")),
    "drained by its idle policy": (device(drain="idle since noon"), Withheld("Drained", "idle since noon")),
    "changed by its pool, not drained": (
        device(pool="a", assignment="a", drain="pool a changes how it is shared"),
        Withheld("Changing", "pool a changes how it is shared"),
    ),
    "retired": (set_aside(device(retired="worn out")), Withheld("Retired", "worn out")),
    "retired by kubectl": (set_aside(device()), Withheld("Retired")),
    "retired and drained": (set_aside(device(drain="fan")), Withheld("Retired")),
    "not retired by the reason alone": (device(retired="worn out"), None),
    "joining": (device(assignment="a"), Withheld("Changing", "it is joining pool a")),
    "not a card that its pool declined": (device(assignment="a", declined="a"), None),
    "declined by another pool before": (
        device(assignment="a", declined="b"),
        Withheld("Changing", "it is joining pool a"),
    ),
    "leaving for a pool that declined it": (
        device(pool="b", assignment="a", declined="a"),
        Withheld("Changing", "it is leaving pool b"),
    ),
    "leaving": (device(pool="a"), Withheld("Changing", "it is leaving pool a")),
    "from one pool to another": (
        device(pool="a", assignment="b"),
        Withheld("Changing", "it is leaving pool a"),
    ),
    "waiting": (
        device(cut=DevicePartitioning(state="Waiting")),
        Withheld("Changing", "it is waiting to be repartitioned"),
    ),
    "changing": (
        device(cut=DevicePartitioning(state="Changing")),
        Withheld("Changing", "it is being repartitioned"),
    ),
    "failed": (
        device(cut=DevicePartitioning(state="Failed")),
        Withheld("Unhealthy", "its repartitioning failed"),
    ),
    "drifted": (
        device(cut=DevicePartitioning(state="Drifted")),
        Withheld("Unhealthy", "its MIG partitions were changed from outside"),
    ),
    "without MIG devices": (
        device(cut=DevicePartitioning(enabled=True)),
        Withheld("Unhealthy", "its MIG mode is enabled and it has no MIG devices"),
    ),
    "gone": (device(gone=True), Withheld("Unhealthy", "it is gone from its node")),
}


@pytest.mark.parametrize(("gpu_device", "why"), WITHHELD.values(), ids=WITHHELD)
def test_why_a_card_is_withheld(gpu_device, why):
    assert convert_node.withheld(gpu_device) == why
    assert convert_node.device(gpu_device).withheld == why


def pool(spec: PoolAllocation, now: PoolAllocation | None = None, *conditions: Condition) -> GPUPool:
    status = GPUPoolStatus(allocation=now, conditions=conditions)
    return GPUPool(metadata=ObjectMeta(name="p"), spec=GPUPoolSpec(allocation=spec), status=status)


def test_a_pool_shares_by_its_status_until_a_change_is_rolled_out():
    wished = PoolAllocation(mode="MIG", mig_profile="1g.10gb")
    turns = PoolAllocation(mode="TimeSlice")

    assert convert_node.pool(pool(wished)).sharing.mode == "MIG"
    assert convert_node.pool(pool(wished, turns)).sharing.mode == "TimeSlice"


def test_during_a_rollout_card_by_card_changed_cards_have_their_own_allocation():
    wished = PoolAllocation(mode="MIG", mig_profile="2g.20gb", rollout="PerCard")
    now = PoolAllocation(mode="MIG", mig_profile="1g.10gb", rollout="PerCard")
    read = convert_node.pool(pool(wished, now, condition("Maintenance", "PerCard")))

    assert (read.sharing.profile, read.withheld) == ("1g.10gb", None)


@pytest.mark.parametrize(
    ("kind", "status", "withheld"),
    [
        ("Maintenance", "True", Withheld("Changing", "its pool is in Maintenance")),
        ("Misconfigured", "True", Withheld("Unhealthy", "its pool is misconfigured")),
        ("Maintenance", "False", None),
        ("CapacityLow", "True", None),
    ],
)
def test_a_pool_in_maintenance_or_misconfigured_is_withheld(kind, status, withheld):
    shares = PoolAllocation(mode="MPS")

    assert convert_node.pool(pool(shares, shares, condition(kind, status=status))).withheld == withheld


def test_node_features_are_merged_and_the_first_by_name_wins():
    bus = FeatureInstanceSet(elements=(FeatureInstance(attributes={"vendor": "10de"}),))
    ours = NodeFeatureSpec(features=NodeFeatureInstances(instances={"pci.device": bus}), labels={"a": "1"})
    theirs = NodeFeatureSpec(labels={"a": "2", "b": "3"})
    scan = nfd.scan(
        [
            NodeFeature(metadata=ObjectMeta(name="z"), spec=theirs),
            NodeFeature(metadata=ObjectMeta(name="a"), spec=ours),
        ]
    )

    assert scan.labels == {"a": "1", "b": "3"}
    assert scan.devices == ({"vendor": "10de"},)
    assert nfd.scan([NodeFeature(spec=theirs)]).devices is None


FINE = ReportedHealth(temperature_c=40, ecc_errors=0, clean=3, metrics={"power": "300"})
NEWS = {
    "not two degrees": ({"temperature_c": 42}, False),
    "five degrees": ({"temperature_c": 45}, True),
    "not a reading": ({"metrics": {"power": "301"}}, False),
    "a memory error": ({"ecc_errors": 1}, True),
    "an XID": ({"xid": 13}, True),
    "a reset of clean heartbeats": ({"clean": 0}, True),
    "a fault": ({"healthy": False, "reason": "ECC", "message": "two bits"}, True),
}


@pytest.mark.parametrize(("changed", "is_news"), NEWS.values(), ids=NEWS)
def test_which_changes_of_health_are_written(changed, is_news):
    before = convert_inventory.merge_health(None, FINE, NOON)
    known = {name: getattr(FINE, name) for name in FINE.__struct_fields__}
    after = convert_inventory.merge_health(before, ReportedHealth(**{**known, **changed}), LATER)

    assert (after != before) == is_news
    assert (after.last_updated == LATER) == is_news


CUTS = {
    "target whole on a whole card": (DevicePartitioning(), DevicePartitioning(target="whole"), False),
    "target removed": (DevicePartitioning(target="whole"), DevicePartitioning(), False),
    "target whole and waiting": (
        DevicePartitioning(),
        DevicePartitioning(target="whole", state="Waiting"),
        True,
    ),
    "another target": (DevicePartitioning(), DevicePartitioning(target="1g.10gb:7"), True),
    "MIG mode switched on": (DevicePartitioning(), DevicePartitioning(enabled=True, target="whole"), True),
    "seen for the first time": (None, DevicePartitioning(target="whole"), True),
}


@pytest.mark.parametrize(("before", "reported", "is_news"), CUTS.values(), ids=CUTS)
def test_which_changes_of_partitioning_are_written(before, reported, is_news):
    assert convert_inventory.merge_partitioning(before, reported) == (reported if is_news else before)


COUNTS = {
    "the first is written with the card": (None, 1, 1),
    "the second is not written": (1, 2, 1),
    "the third is written": (1, 3, 3),
    "a decrease is written": (3, 1, 1),
    "a reset is written": (2, 0, 0),
}


@pytest.mark.parametrize(("written", "clean", "then"), COUNTS.values(), ids=COUNTS)
def test_which_heartbeat_counters_are_written(written, clean, then):
    before = DeviceHealth(consecutive_healthy=written) if written is not None else None

    assert (
        convert_inventory.merge_health(before, ReportedHealth(clean=clean), NOON).consecutive_healthy == then
    )


def test_the_last_error_is_kept_with_the_time_at_which_it_began():
    faulty = ReportedHealth(healthy=False, reason="XID", message="fell off", xid=79)
    first = convert_inventory.merge_health(None, faulty, NOON)
    still = convert_inventory.merge_health(first, faulty, LATER)
    over = convert_inventory.merge_health(still, FINE, LATER)

    assert still == first
    assert (over.last_error, over.last_error_time, over.xid) == ("fell off", NOON, 79)
    assert over.consecutive_healthy == 3


def test_a_vanished_card_is_written_once():
    lost = convert_inventory.vanished_health(DeviceHealth(consecutive_healthy=3), NOON)

    assert (lost.last_error_reason, lost.consecutive_healthy) == ("Vanished", 0)
    assert convert_inventory.vanished_health(lost, LATER) == lost
