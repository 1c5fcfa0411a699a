"""What a node serves of its cards: every card under the names it may be asked for, and under no other."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.nodes import devices
from croupier.core.nodes.devices import NodeCard, Unit
from croupier.core.pods import request
from tests.core.served import GPU, MEDIUM, NODE, PERCENT, POOL, cut, name, pooled, whole

MIG = "nvidia.com/mig-"

OFFERED = {
    "a card of no pool, whole or in percent": ([whole()], {GPU: 1, PERCENT: 100}),
    "two of them": ([whole(0), whole(1)], {GPU: 2, PERCENT: 200}),
    "a cut card by its profiles": ([cut(slots=MEDIUM)], {f"{MIG}2g.20gb": 2, f"{MIG}3g.30gb": 1}),
    "extras as Kubernetes can spell them": (
        [cut(slots=[("1g.10gb+me-0", "1g.10gb+me")])],
        {f"{MIG}1g.10gb.me": 1},
    ),
    "nothing of a card that could be cut and is not": ([whole(mig_enabled=True)], {}),
    "nothing of a card that is being cut": ([whole(changing=True), whole(1)], {GPU: 1, PERCENT: 100}),
    "a pool's cards only under its name": (
        [pooled(sharing="Exclusive"), whole(1)],
        {f"{POOL}blue": 1, GPU: 1, PERCENT: 100},
    ),
    "time slices": ([pooled(sharing="TimeSlice", slices=4)], {f"{POOL}blue": 4}),
    "percent of a pool": ([pooled(sharing="MPS")], {f"{POOL}blue": 100}),
    "slots of a pool": ([replace(cut(), pool=pooled(sharing="MIG").pool)], {f"{POOL}blue": 7}),
    "nothing while the pool wants it cut": ([pooled(sharing="MIG")], {}),
    "nothing while the pool wants it whole": ([replace(cut(), pool=pooled().pool)], {}),
}


@pytest.mark.parametrize(("cards", "expected"), OFFERED.values(), ids=OFFERED)
def test_what_is_offered(cards, expected):
    offer = devices.offer(cards)

    assert {resource: len(listed) for resource, listed in offer.resources.items()} == expected
    assert offer.healthy() == expected


def test_a_sick_card_stays_in_the_list_and_is_not_to_be_had():
    offer = devices.offer([whole(0, healthy=False), whole(1)])

    assert len(offer.resources[GPU]) == 2
    assert offer.healthy() == {GPU: 1, PERCENT: 100}


def test_what_was_served_before_stays_without_devices():
    offer = devices.offer([cut(0)], before=[GPU, PERCENT])

    assert offer.healthy() == {GPU: 0, PERCENT: 0, f"{MIG}1g.10gb": 7}


NAMES = {
    "a card": ("node-1-0000-10-00-0", Unit("node-1-0000-10-00-0"), 100, ""),
    "a percent": ("node-1-0000-10-00-0::p07", Unit("node-1-0000-10-00-0", "p07"), 1, ""),
    "a time slice": ("node-1-0000-10-00-0::s63", Unit("node-1-0000-10-00-0", "s63"), 1, ""),
    "a slot": ("n::1g.10gb+me-0", Unit("n", "1g.10gb+me-0"), 0, "1g.10gb+me-0"),
}


@pytest.mark.parametrize(("device", "unit", "share", "slot"), NAMES.values(), ids=NAMES)
def test_a_name_tells_what_it_is_part_of(device, unit, share, slot):
    assert devices.unit(device) == unit
    assert (unit.share, unit.slot) == (share, slot)


REGISTERED = {
    "ours": ({GPU: [name(0)], PERCENT: [f"{name(0)}::p00"]}, set()),
    "those of an agent before us, of a card that is gone": ({GPU: [f"{NODE}-0000-ff-00-0"]}, set()),
    "theirs, by UUID": ({GPU: ["GPU-8a2f"], PERCENT: [f"{name(0)}::p00"]}, {GPU}),
    "theirs among ours": ({GPU: [name(0), "GPU-8a2f"]}, {GPU}),
    "another node's": ({GPU: ["node-10-0000-10-00-0"]}, {GPU}),
    "nobody's": ({GPU: []}, set()),
}


@pytest.mark.parametrize(("registered", "theirs"), REGISTERED.values(), ids=REGISTERED)
def test_whose_a_resource_is(registered, theirs):
    assert devices.foreign(NODE, registered) == theirs


KINDS: tuple[Callable[[int], NodeCard], ...] = (
    whole,
    cut,
    lambda n: cut(n, MEDIUM),
    lambda n: whole(n, healthy=False),
    lambda n: whole(n, changing=True),
    lambda n: whole(n, mig_enabled=True),
    lambda n: pooled(n, "Exclusive"),
    lambda n: pooled(n, "TimeSlice", slices=3),
    lambda n: pooled(n, "MPS", pool="red"),
    lambda n: replace(cut(n), pool=pooled(sharing="MIG", pool="green").pool),
    lambda n: replace(cut(n), pool=pooled(sharing="MPS").pool),
)

cards = st.lists(st.sampled_from(KINDS), max_size=8).map(
    lambda kinds: [make(number) for number, make in enumerate(kinds)]
)


@given(cards)
def test_every_device_is_named_once_and_can_be_asked_for(listed):
    offer = devices.offer(listed)

    ids = Counter(device.id for served in offer.resources.values() for device in served)
    assert all(count == 1 for count in ids.values())
    for resource, served in offer.resources.items():
        assert request.concerns(resource)
        for device in served:
            card = offer.cards[devices.unit(device.id).card]
            assert not card.changing
            assert device.healthy == card.healthy
            assert (card.pool is None) == (not resource.startswith(POOL))
            if slot := devices.unit(device.id).slot:
                assert slot in {one.id for one in card.slots}
                assert card.pool is not None or request.profile(resource) == slot.rpartition("-")[0]


@given(cards, cards)
def test_whatever_changes_no_resource_is_dropped(before, now):
    served = devices.offer(before).resources

    assert served.keys() <= devices.offer(now, served.keys()).resources.keys()
