"""Allocatable, allocated and available amounts of every node, with well-known examples."""

from collections.abc import Mapping

import pytest

from croupier.core import availability, quantity
from croupier.core.availability import NOTHING, AccountedPod, Availability, ResourceAmounts
from croupier.core.quantity import ZERO

GPU, SMALL, MEDIUM = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"


def amounts(written: Mapping[str, str]) -> dict[str, quantity.Quantity]:
    return {name: quantity.parse(text) for name, text in written.items()}


def index(**nodes: Mapping[str, str]) -> Availability:
    """Node names with underscores for dashes."""
    made = Availability()
    for name, offered in nodes.items():
        made.set_node(name.replace("_", "-"), amounts(offered))
    return made


def pod(number: int, node: str, requests: Mapping[str, str], *, uid: str = "") -> AccountedPod:
    return AccountedPod(f"team/p{number}", uid or f"uid-{number}", node, amounts(requests))


def three(capacity: str, allocatable: str, allocated: str) -> ResourceAmounts:
    return ResourceAmounts.of(*map(quantity.parse, (capacity, allocatable, allocated)))


def test_three_pods_with_a_gpu_each_leave_one_of_four():
    shown = index(gpu_sim_cluster_worker={GPU: "4"})
    for number in range(3):
        shown.set_pod(pod(number, "gpu-sim-cluster-worker", {GPU: "1"}))

    numbers = shown.three("gpu-sim-cluster-worker", GPU)

    assert [numbers.allocatable.whole, numbers.allocated.whole, numbers.available.whole] == [4, 3, 1]


def test_the_rest_is_available_on_node_1():
    shown = index(node_1={MEDIUM: "12"}, node_2={MEDIUM: "12"})
    for number in range(22):
        shown.set_pod(pod(number, "node-1" if number < 10 else "node-2", {MEDIUM: "1"}))

    assert [shown.three(node, MEDIUM).available.whole for node in ("node-1", "node-2")] == [2, 0]
    assert shown.max_free(MEDIUM) == quantity.parse("2")
    assert shown.total(MEDIUM) == three("24", "24", "22")


def test_a_node_has_the_resources_that_it_reports():
    shown = index(gpu_worker2={GPU: "4", SMALL: "28", MEDIUM: "12"})

    left = {resource: str(amounts_.available) for resource, amounts_ in shown.node("gpu-worker2").items()}

    assert left == {GPU: "4", SMALL: "28", MEDIUM: "12"}


def test_reserved_is_capacity_minus_allocatable():
    shown = Availability()
    shown.set_node("node-1", amounts({"cpu": "63900m"}), capacity=amounts({"cpu": "64"}))

    assert str(shown.three("node-1", "cpu").reserved) == "100m"


def test_a_pod_bound_to_an_unknown_node_counts_when_the_node_appears():
    shown = Availability()
    shown.set_pod(pod(1, "late", {GPU: "1"}))
    assert (list(shown.nodes()), list(shown.resources()), shown.total(GPU)) == ([], [], NOTHING)

    shown.set_node("late", amounts({GPU: "4"}))

    assert shown.three("late", GPU) == three("4", "4", "1")


def test_pods_count_again_when_their_node_returns():
    shown = index(node_1={GPU: "4"})
    shown.set_pod(pod(1, "node-1", {GPU: "1"}))
    shown.set_pod(pod(2, "node-1", {GPU: "1"}))

    shown.drop_node("node-1")
    assert shown.total(GPU) == NOTHING
    assert not shown.exists(GPU)
    shown.drop_pod("uid-1")
    shown.set_node("node-1", amounts({GPU: "8"}))

    assert shown.total(GPU) == three("8", "8", "1")


def test_a_new_pod_replaces_an_old_pod_with_the_same_name():
    shown = index(node_1={GPU: "4"}, node_2={GPU: "4"})
    shown.set_pod(pod(1, "node-1", {GPU: "3"}))

    shown.set_pod(pod(1, "node-2", {GPU: "1"}, uid="another"))
    shown.drop_pod("uid-1")  # a late deletion of the old pod

    assert [shown.three(node, GPU).allocated.whole for node in ("node-1", "node-2")] == [0, 1]


def test_available_is_negative_if_more_is_requested_than_allocatable():
    shown = index(node_1={MEDIUM: "8"})
    shown.set_pod(pod(1, "node-1", {MEDIUM: "3", "example.com/unreported": "1"}))

    shown.set_node("node-1", amounts({MEDIUM: "0"}))  # repartitioned under a running pod

    assert str(shown.three("node-1", MEDIUM).available) == "-3"
    assert str(shown.three("node-1", "example.com/unreported").available) == "-1"


EXISTS = {
    "one unit": ("1", True),
    "a fraction is not enough": ("999m", False),
    "zero after repartitioning": ("0", False),
}


@pytest.mark.parametrize(("allocatable", "there"), EXISTS.values(), ids=EXISTS)
def test_a_resource_exists_if_a_node_has_one_unit(allocatable, there):
    assert index(node_1={MEDIUM: allocatable}).exists(MEDIUM) is there


def test_an_allocated_resource_still_exists():
    shown = index(node_1={MEDIUM: "1"})
    shown.set_pod(pod(1, "node-1", {MEDIUM: "1"}))

    assert shown.exists(MEDIUM)
    assert shown.max_free(MEDIUM) == ZERO


def test_a_cordoned_node_does_not_count_for_max_free():
    shown = index(node_1={GPU: "8"}, node_2={GPU: "4"})
    assert shown.max_free(GPU) == quantity.parse("8")

    shown.set_node("node-1", amounts({GPU: "8"}), cordoned=True)
    assert shown.max_free(GPU) == quantity.parse("4")
    assert shown.total(GPU) == three("12", "12", "0")  # the total includes it

    shown.set_node("node-1", amounts({GPU: "8"}))
    assert shown.max_free(GPU) == quantity.parse("8")


def test_unknown_resource_names_are_not_stored():
    shown = index(node_1={GPU: "1"})

    for number in range(1000):
        assert shown.max_free(f"nvidia.com/mig-{number}") == ZERO

    assert not shown._heaps


def test_the_max_free_heap_stays_bounded():
    shown = index(node_1={GPU: "8"}, node_2={GPU: "4"})
    assert shown.max_free(GPU) == quantity.parse("8")

    for number in range(1000):
        shown.set_pod(pod(number, "node-1", {GPU: "1"}))
        if number >= 5:
            shown.drop_pod(f"uid-{number - 5}")

    assert len(shown._heaps.get(GPU, ())) < 100
    assert shown.max_free(GPU) == quantity.parse("4")


def test_fractions_in_every_notation_add_up_and_cancel_exactly():
    spelled = ["100m", "0.1", "1e-1", "100000u", "1.5Gi", "1e3", "1536Mi", "1n"]
    shown = index(node_1={"cpu": "64"})
    for number, text in enumerate(spelled):
        shown.set_pod(pod(number, "node-1", {"cpu": text}))

    expected = sum(map(quantity.parse, spelled), ZERO)
    assert shown.three("node-1", "cpu").allocated == expected

    for number in range(len(spelled)):
        shown.drop_pod(f"uid-{number}")
    assert shown.three("node-1", "cpu").allocated == ZERO


LIMITS = {
    "the ledger has less free than requests leave": ("8", "0", 6, "6"),
    "requests leave less than the ledger has free": ("8", "5", 6, "3"),
    "the node does not report the resource": ("0", "100", 550, "550"),
    "more is requested than the node has": ("2", "3", 1, "0"),
    "nothing is free": ("8", "0", 0, "0"),
}


@pytest.mark.parametrize(("allocatable", "allocated", "free", "left"), LIMITS.values(), ids=LIMITS)
def test_the_ledger_limits_what_is_available(allocatable, allocated, free, left):
    was = {GPU: three(allocatable, allocatable, allocated), "cpu": three("4", "4", "5")}

    now = availability.with_ledger(was, {GPU: free})

    assert now[GPU] == was[GPU]._replace(available=quantity.parse(left))
    assert now["cpu"] == was["cpu"]
    total = availability.summed([now[GPU], now[GPU]])
    assert total.available == now[GPU].available + now[GPU].available
