"""What the objects of a node say of its cards: why one is withheld, how a pool shares, what is news."""

from datetime import UTC, datetime, timedelta

import pytest

from croupier.api import nfd
from croupier.api.gpu import GPUDevice, GPUPool, inventory, report
from croupier.api.gpu.agent_report import CardHealth
from croupier.api.gpu.device import Cut, GPUDeviceStatus, Health, PoolReference
from croupier.api.gpu.pool import Allocation, GPUPoolSpec, GPUPoolStatus
from croupier.api.meta import Condition, ObjectMeta
from croupier.api.nfd import Features, Instance, InstanceSet, NodeFeature, NodeFeatureSpec

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


def condition(kind: str, reason: str = "So", status: str = "True") -> Condition:
    return Condition(type=kind, status=status, reason=reason, last_transition_time=NOON)  # type: ignore[arg-type]  # True or False


def device(pool: str = "", cut: Cut | None = None, gone: bool = False, **annotations: str) -> GPUDevice:
    notes = {f"gpu.deckhouse.io/{key}": value for key, value in annotations.items()}
    status = GPUDeviceStatus(
        cut=cut,
        pool_ref=PoolReference(name=pool) if pool else None,
        conditions=(condition("Vanished"),) if gone else (),
    )
    return GPUDevice(metadata=ObjectMeta(name="card", annotations=notes), status=status)


WITHHELD = {
    "a card at rest is given": (device(), ""),
    "one in its pool is given": (device(pool="a", assignment="a"), ""),
    "one that is cut as it shall be is given": (device(cut=Cut(target="whole")), ""),
    "drained": (device(drain=""), "it is drained"),
    "on its way in": (device(assignment="a"), "it is on its way into pool a"),
    "on its way out": (device(pool="a"), "it leaves pool a"),
    "from one pool to another": (device(pool="a", assignment="b"), "it leaves pool a"),
    "waiting": (device(cut=Cut(state="Waiting")), "it waits to be cut anew"),
    "changing": (device(cut=Cut(state="Changing")), "it is being cut anew"),
    "failed": (device(cut=Cut(state="Failed")), "it could not be cut as it shall be"),
    "drifted": (device(cut=Cut(state="Drifted")), "it is not cut as it was left"),
    "cut into nothing": (device(cut=Cut(enabled=True)), "its MIG mode is on and it is cut into nothing"),
    "gone": (device(gone=True), "it is gone from its node"),
}


@pytest.mark.parametrize(("found", "why"), WITHHELD.values(), ids=WITHHELD)
def test_why_a_card_is_given_to_nobody(found, why):
    assert report.withheld(found) == why
    assert report.device(found).withheld == why


def pool(spec: Allocation, now: Allocation | None = None, *conditions: Condition) -> GPUPool:
    status = GPUPoolStatus(allocation=now, conditions=conditions)
    return GPUPool(metadata=ObjectMeta(name="p"), spec=GPUPoolSpec(allocation=spec), status=status)


def test_a_pool_shares_as_is_carried_out_and_not_as_is_asked_for():
    wished = Allocation(mode="MIG", mig_profile="1g.10gb")
    turns = Allocation(mode="TimeSlice")

    assert report.pool(pool(wished)).sharing == "MIG"
    assert report.pool(pool(wished, turns)).sharing == "TimeSlice"


def test_a_pool_that_changes_card_by_card_serves_as_it_did_while_cards_that_are_ahead_say_so_themselves():
    wished = Allocation(mode="MIG", mig_profile="2g.20gb", rollout="PerCard")
    now = Allocation(mode="MIG", mig_profile="1g.10gb", rollout="PerCard")
    read = report.pool(pool(wished, now, condition("Maintenance", "PerCard")))

    assert (read.profile, read.withheld) == ("1g.10gb", "")


@pytest.mark.parametrize(
    ("kind", "status", "withheld"),
    [
        ("Maintenance", "True", "its pool is in Maintenance"),
        ("Misconfigured", "True", "its pool is misconfigured"),
        ("Maintenance", "False", ""),
        ("CapacityLow", "True", ""),
    ],
)
def test_a_pool_at_rest_gives_nothing(kind, status, withheld):
    shares = Allocation(mode="MPS")

    assert report.pool(pool(shares, shares, condition(kind, status=status))).withheld == withheld


def test_the_objects_of_a_node_are_taken_together_and_the_first_by_name_wins():
    bus = InstanceSet(elements=(Instance(attributes={"vendor": "10de"}),))
    ours = NodeFeatureSpec(features=Features(instances={"pci.device": bus}), labels={"a": "1"})
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


FINE = CardHealth(temperature_c=40, ecc_errors=0, clean=3, metrics={"power": "300"})
NEWS = {
    "two degrees are none": ({"temperature_c": 42}, False),
    "five degrees are": ({"temperature_c": 45}, True),
    "a reading is none": ({"metrics": {"power": "301"}}, False),
    "an error of memory is": ({"ecc_errors": 1}, True),
    "an XID is": ({"xid": 13}, True),
    "an end of clean heartbeats is": ({"clean": 0}, True),
    "a fault is": ({"healthy": False, "reason": "ECC", "message": "two bits"}, True),
}


@pytest.mark.parametrize(("changed", "is_news"), NEWS.values(), ids=NEWS)
def test_what_of_a_cards_health_is_news(changed, is_news):
    before = inventory.health(None, FINE, NOON)
    known = {name: getattr(FINE, name) for name in FINE.__struct_fields__}
    after = inventory.health(before, CardHealth(**{**known, **changed}), LATER)

    assert (after != before) == is_news
    assert (after.last_updated == LATER) == is_news


CUTS = {
    "whole, and now asked to be": (Cut(), Cut(target="whole"), False),
    "no longer asked": (Cut(target="whole"), Cut(), False),
    "asked, and waiting": (Cut(), Cut(target="whole", state="Waiting"), True),
    "asked to be cut": (Cut(), Cut(target="1g.10gb:7"), True),
    "MIG mode switched on": (Cut(), Cut(enabled=True, target="whole"), True),
    "seen for the first time": (None, Cut(target="whole"), True),
}


@pytest.mark.parametrize(("before", "told", "is_news"), CUTS.values(), ids=CUTS)
def test_what_of_a_cards_cut_is_news(before, told, is_news):
    assert inventory.cut(before, told) == (told if is_news else before)


COUNTS = {
    "the first is written with the card": (None, 1, 1),
    "the second waits": (1, 2, 1),
    "the third is what counts": (1, 3, 3),
    "so is one fewer": (3, 1, 1),
    "and none": (2, 0, 0),
}


@pytest.mark.parametrize(("written", "clean", "then"), COUNTS.values(), ids=COUNTS)
def test_how_clean_heartbeats_are_counted(written, clean, then):
    before = Health(consecutive_healthy=written) if written is not None else None

    assert inventory.health(before, CardHealth(clean=clean), NOON).consecutive_healthy == then


def test_the_last_error_stays_when_it_is_over_and_its_time_is_that_of_its_beginning():
    ill = CardHealth(healthy=False, reason="XID", message="fell off", xid=79)
    first = inventory.health(None, ill, NOON)
    still = inventory.health(first, ill, LATER)
    over = inventory.health(still, FINE, LATER)

    assert still == first
    assert (over.last_error, over.last_error_time, over.xid) == ("fell off", NOON, 79)
    assert over.consecutive_healthy == 3


def test_a_card_that_is_gone_is_told_once():
    lost = inventory.lost(Health(consecutive_healthy=3), NOON)

    assert (lost.last_error_reason, lost.consecutive_healthy) == ("Vanished", 0)
    assert inventory.lost(lost, LATER) == lost
