"""Mismatches between kubelet assignments and grants are found, with what can be done about them."""

import pytest

from croupier.core.model.card import CardGrant
from croupier.core.nodes import allocation_check, kubelet_assignments, plugin_devices
from croupier.core.nodes.kubelet_assignments import KubeletAssignment
from tests.core.kubelet_env import GPU, PERCENT, name, partitioned, pod, share, slots, whole

CARDS = plugin_devices.served_resources([whole(0), whole(1), whole(2), partitioned(3)]).cards
SLOT = "nvidia.com/mig-1g.10gb"


def has(key: str, resource: str, *ids: str, container: str = "main") -> KubeletAssignment:
    return KubeletAssignment(f"team/{key}", container, resource, ids)


def percents(index: int, first: int, last: int) -> list[str]:
    return [f"{name(index)}::p{n:02}" for n in range(first, last)]


FOUND = {
    "no mismatch, as granted": ([pod("a", {GPU: 1}, share(0))], [has("a", GPU, name(0))], []),
    "no mismatch, before a pod is served": ([pod("a", {GPU: 1}, share(0))], [], []),
    "no mismatch, if an init container has the rest": (
        [pod("a", {GPU: 2}, share(0), share(1))],
        [has("a", GPU, name(1))],
        [],
    ),
    "no mismatch, with the name by index": (
        [pod("a", {GPU: 1}, CardGrant("node-1-gpu-2", 100))],
        [has("a", GPU, name(2))],
        [],
    ),
    "another card, which is free": (
        [pod("a", {GPU: 1}, share(0))],
        [has("a", GPU, name(1))],
        [("team/a", True)],
    ),
    "another slot": (
        [pod("a", {SLOT: 1}, slots(3, "1g.10gb-0"))],
        [has("a", SLOT, f"{name(3)}::1g.10gb-1")],
        [("team/a", True)],
    ),
    "each other's cards": (
        [pod("a", {GPU: 1}, share(0)), pod("b", {GPU: 1}, share(1))],
        [has("a", GPU, name(1)), has("b", GPU, name(0))],
        [("team/a", True), ("team/b", True)],
    ),
    "the card of a waiting pod": (
        [pod("a", {GPU: 1}, share(0)), pod("b", {GPU: 1}, share(1))],
        [has("a", GPU, name(1))],
        [("team/a", False)],
    ),
    "the card of a pod that has it": (
        [pod("a", {GPU: 1}, share(0)), pod("b", {PERCENT: 50}, share(1, 50))],
        [has("a", GPU, name(1)), has("b", PERCENT, *percents(1, 0, 50))],
        [("team/a", False)],
    ),
    "a share that fits next to another": (
        [pod("a", {PERCENT: 50}, share(0, 50)), pod("b", {PERCENT: 50}, share(1, 50))],
        [has("a", PERCENT, *percents(1, 50, 100)), has("b", PERCENT, *percents(1, 0, 50))],
        [("team/a", True)],
    ),
    "a share that does not fit next to two others": (
        [
            pod("a", {PERCENT: 40}, share(0, 40)),
            pod("b", {PERCENT: 40}, share(1, 40)),
            pod("c", {PERCENT: 40}, share(1, 40)),
        ],
        [has("a", PERCENT, *percents(1, 0, 40))],
        [("team/a", False)],
    ),
    "a share of a partitioned card": (
        [pod("a", {PERCENT: 1}, share(0, 1)), pod("b", {SLOT: 1}, slots(3, "1g.10gb-0"))],
        [has("a", PERCENT, *percents(3, 0, 1))],
        [("team/a", False)],
    ),
    "more than granted of the same card": (
        [pod("a", {PERCENT: 50}, share(0, 40))],
        [has("a", PERCENT, *percents(0, 0, 50))],
        [("team/a", True)],
    ),
    "a pod without a grant": (
        [pod("a", {GPU: 1})],
        [has("a", GPU, name(2))],
        [("team/a", True)],
    ),
    "the card of an unknown pod": (
        [pod("a", {GPU: 1}, share(0))],
        [has("a", GPU, name(1)), has("unknown", PERCENT, *percents(1, 0, 1))],
        [("team/a", False)],
    ),
}


@pytest.mark.parametrize(("pods", "holdings", "expected"), FOUND.values(), ids=FOUND)
def test_mismatches_and_whether_the_grant_can_move(pods, holdings, expected):
    found = allocation_check.compare(pods, holdings, CARDS)

    assert [(mismatch.pod.key, mismatch.can_move) for mismatch in found] == expected


def test_the_message_of_a_mismatch():
    pods = [pod("a", {GPU: 1}, share(0)), pod("b", {GPU: 1}, share(1))]

    (found,) = allocation_check.compare(pods, [has("a", GPU, name(1))], CARDS)

    assert found.overlaps == ("team/b",)
    assert str(found) == (
        f"pod team/a was granted 100 of card {name(0)} but has 100 of card {name(1)}, "
        "which team/b has or was granted"
    )


def test_slots_in_a_message():
    assert (
        allocation_check.describe((slots(3, "1g.10gb-0", "1g.10gb-2"),))
        == f"1g.10gb-0, 1g.10gb-2 of card {name(3)}"
    )


def test_devices_of_another_plugin_are_matched_by_driver_uuid():
    holdings = [
        has("a", GPU, "GPU-0", "GPU-1"),
        has("b", SLOT, "MIG-3-1g.10gb-2"),
        has("c", "example.com/net", "eth0"),
        has("d", GPU, "GPU-elsewhere", name(2)),
    ]

    assert [
        (held.pod, kubelet_assignments.parts(held.ids))
        for held in kubelet_assignments.of_known_cards(holdings, CARDS)
    ] == [
        ("team/a", (CardGrant(name(0), 100), CardGrant(name(1), 100))),
        ("team/b", (slots(3, "1g.10gb-2"),)),
        ("team/d", (CardGrant(name(2), 100),)),
    ]
