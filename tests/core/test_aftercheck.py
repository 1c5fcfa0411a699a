"""What the kubelet did otherwise is noticed, and it is said what can be done about it."""

import pytest

from croupier.core.ledgers.ledger import Part
from croupier.core.nodes import aftercheck, devices, handed
from croupier.core.nodes.handed import Holding
from tests.core.served import GPU, PERCENT, cut, name, pod, share, slots, whole

CARDS = devices.offer([whole(0), whole(1), whole(2), cut(3)]).cards
SLOT = "nvidia.com/mig-1g.10gb"


def has(key: str, resource: str, *ids: str, container: str = "main") -> Holding:
    return Holding(f"team/{key}", container, resource, ids)


def percents(index: int, first: int, last: int) -> list[str]:
    return [f"{name(index)}::p{n:02}" for n in range(first, last)]


FOUND = {
    "nothing, where all is as promised": ([pod("a", {GPU: 1}, share(0))], [has("a", GPU, name(0))], []),
    "nothing, before a pod is served": ([pod("a", {GPU: 1}, share(0))], [], []),
    "nothing, where it shows less: an init container had the rest": (
        [pod("a", {GPU: 2}, share(0), share(1))],
        [has("a", GPU, name(1))],
        [],
    ),
    "nothing, where the card was called by its number": (
        [pod("a", {GPU: 1}, Part("node-1-gpu-2", 100))],
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
    "the card of one who waits": (
        [pod("a", {GPU: 1}, share(0)), pod("b", {GPU: 1}, share(1))],
        [has("a", GPU, name(1))],
        [("team/a", False)],
    ),
    "the card of one who has it": (
        [pod("a", {GPU: 1}, share(0)), pod("b", {PERCENT: 50}, share(1, 50))],
        [has("a", GPU, name(1)), has("b", PERCENT, *percents(1, 0, 50))],
        [("team/a", False)],
    ),
    "a share beside another that fits": (
        [pod("a", {PERCENT: 50}, share(0, 50)), pod("b", {PERCENT: 50}, share(1, 50))],
        [has("a", PERCENT, *percents(1, 50, 100)), has("b", PERCENT, *percents(1, 0, 50))],
        [("team/a", True)],
    ),
    "a share beside two others that leave too little": (
        [
            pod("a", {PERCENT: 40}, share(0, 40)),
            pod("b", {PERCENT: 40}, share(1, 40)),
            pod("c", {PERCENT: 40}, share(1, 40)),
        ],
        [has("a", PERCENT, *percents(1, 0, 40))],
        [("team/a", False)],
    ),
    "a share of a card that is cut for another": (
        [pod("a", {PERCENT: 1}, share(0, 1)), pod("b", {SLOT: 1}, slots(3, "1g.10gb-0"))],
        [has("a", PERCENT, *percents(3, 0, 1))],
        [("team/a", False)],
    ),
    "more than was promised of the same card": (
        [pod("a", {PERCENT: 50}, share(0, 40))],
        [has("a", PERCENT, *percents(0, 0, 50))],
        [("team/a", True)],
    ),
    "a pod that nobody promised anything": (
        [pod("a", {GPU: 1})],
        [has("a", GPU, name(2))],
        [("team/a", True)],
    ),
    "the card of a pod nobody told us of": (
        [pod("a", {GPU: 1}, share(0))],
        [has("a", GPU, name(1)), has("unknown", PERCENT, *percents(1, 0, 1))],
        [("team/a", False)],
    ),
}


@pytest.mark.parametrize(("pods", "holdings", "expected"), FOUND.values(), ids=FOUND)
def test_what_is_noticed_and_whether_the_promise_can_follow(pods, holdings, expected):
    found = aftercheck.compare(pods, holdings, CARDS)

    assert [(mismatch.pod.key, mismatch.can_move) for mismatch in found] == expected


def test_a_mismatch_says_all_of_it():
    pods = [pod("a", {GPU: 1}, share(0)), pod("b", {GPU: 1}, share(1))]

    (found,) = aftercheck.compare(pods, [has("a", GPU, name(1))], CARDS)

    assert found.overlaps == ("team/b",)
    assert str(found) == (
        f"pod team/a was promised 100 of card {name(0)} and has 100 of card {name(1)}, "
        "which team/b has or was promised"
    )


def test_slots_are_named():
    assert (
        aftercheck.words((slots(3, "1g.10gb-0", "1g.10gb-2"),)) == f"1g.10gb-0, 1g.10gb-2 of card {name(3)}"
    )


def test_what_another_plugin_hands_out_is_known_by_the_drivers_names():
    told = [
        has("a", GPU, "GPU-0", "GPU-1"),
        has("b", SLOT, "MIG-3-1g.10gb-2"),
        has("c", "example.com/net", "eth0"),
        has("d", GPU, "GPU-elsewhere", name(2)),
    ]

    assert [(one.pod, handed.parts(one.ids)) for one in handed.known(told, CARDS)] == [
        ("team/a", (Part(name(0), 100), Part(name(1), 100))),
        ("team/b", (slots(3, "1g.10gb-2"),)),
        ("team/d", (Part(name(2), 100),)),
    ]
