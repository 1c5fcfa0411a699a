"""The resources and devices that a node serves for its cards."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.model.enforcement import CardEnforcement
from croupier.core.nodes import plugin_devices
from croupier.core.nodes.plugin_devices import DeviceUnit, NodeCard
from croupier.core.pods import request_parser
from tests.core.kubelet_env import GPU, MEDIUM, NODE, PERCENT, POOL, name, partitioned, pooled, whole

MIG = "nvidia.com/mig-"

OFFERED = {
    "a card of no pool, whole or in percent": ([whole()], {GPU: 1, PERCENT: 100}),
    "two of them": ([whole(0), whole(1)], {GPU: 2, PERCENT: 200}),
    "a partitioned card by its profiles": (
        [partitioned(slots=MEDIUM)],
        {f"{MIG}2g.20gb": 2, f"{MIG}3g.30gb": 1},
    ),
    "extras in valid resource names": (
        [partitioned(slots=[("1g.10gb+me-0", "1g.10gb+me")])],
        {f"{MIG}1g.10gb.me": 1},
    ),
    "nothing of a card with MIG mode and no devices": ([whole(mig_enabled=True)], {}),
    "nothing of a card that is being repartitioned": (
        [whole(changing=True), whole(1)],
        {GPU: 1, PERCENT: 100},
    ),
    "cards of a pool only under its resource": (
        [pooled(sharing="Exclusive"), whole(1)],
        {f"{POOL}blue": 1, GPU: 1, PERCENT: 100},
    ),
    "time slices": ([pooled(sharing="TimeSlice", slices=4)], {f"{POOL}blue": 4}),
    "percent of a pool": ([pooled(sharing="MPS")], {f"{POOL}blue": 100}),
    "slots of a pool": ([replace(partitioned(), pool=pooled(sharing="MIG").pool)], {f"{POOL}blue": 7}),
    "nothing before the card is partitioned for its pool": ([pooled(sharing="MIG")], {}),
    "nothing while the card of a pool is still partitioned": (
        [replace(partitioned(), pool=pooled().pool)],
        {},
    ),
}


@pytest.mark.parametrize(("cards", "expected"), OFFERED.values(), ids=OFFERED)
def test_served_resources(cards, expected):
    offer = plugin_devices.served_resources(cards)

    assert {resource: len(listed) for resource, listed in offer.resources.items()} == expected
    assert offer.healthy() == expected


def test_an_unhealthy_card_is_listed_as_unhealthy():
    offer = plugin_devices.served_resources([whole(0, healthy=False), whole(1)])

    assert len(offer.resources[GPU]) == 2
    assert offer.healthy() == {GPU: 1, PERCENT: 100}


def test_a_resource_served_before_stays_without_devices():
    offer = plugin_devices.served_resources([partitioned(0)], before=[GPU, PERCENT])

    assert offer.healthy() == {GPU: 0, PERCENT: 0, f"{MIG}1g.10gb": 7}


NAMES = {
    "a card": ("node-1-0000-10-00-0", DeviceUnit("node-1-0000-10-00-0"), 100, ""),
    "a percent": ("node-1-0000-10-00-0::p07", DeviceUnit("node-1-0000-10-00-0", "p07"), 1, ""),
    "a time slice": ("node-1-0000-10-00-0::s63", DeviceUnit("node-1-0000-10-00-0", "s63"), 1, ""),
    "a slot": ("n::1g.10gb+me-0", DeviceUnit("n", "1g.10gb+me-0"), 0, "1g.10gb+me-0"),
}


@pytest.mark.parametrize(("device", "unit", "share", "slot"), NAMES.values(), ids=NAMES)
def test_a_device_name_is_parsed(device, unit, share, slot):
    assert plugin_devices.parse_unit(device) == unit
    assert (unit.share, unit.slot) == (share, slot)


REGISTERED = {
    "ours": ({GPU: [name(0)], PERCENT: [f"{name(0)}::p00"]}, set()),
    "those of a previous agent, of a vanished card": ({GPU: [f"{NODE}-0000-ff-00-0"]}, set()),
    "foreign, by UUID": ({GPU: ["GPU-8a2f"], PERCENT: [f"{name(0)}::p00"]}, {GPU}),
    "foreign among ours": ({GPU: [name(0), "GPU-8a2f"]}, {GPU}),
    "of another node": ({GPU: ["node-10-0000-10-00-0"]}, {GPU}),
    "without devices": ({GPU: []}, set()),
}


@pytest.mark.parametrize(("registered", "theirs"), REGISTERED.values(), ids=REGISTERED)
def test_foreign_resources(registered, theirs):
    assert plugin_devices.foreign(NODE, registered) == theirs


KINDS: tuple[Callable[[int], NodeCard], ...] = (
    whole,
    partitioned,
    lambda n: partitioned(n, MEDIUM),
    lambda n: whole(n, healthy=False),
    lambda n: whole(n, changing=True),
    lambda n: whole(n, mig_enabled=True),
    lambda n: pooled(n, "Exclusive"),
    lambda n: pooled(n, "TimeSlice", slices=3),
    lambda n: pooled(n, "MPS", pool="red"),
    lambda n: replace(partitioned(n), pool=pooled(sharing="MIG", pool="green").pool),
    lambda n: replace(partitioned(n), pool=pooled(sharing="MPS").pool),
)

cards = st.lists(st.sampled_from(KINDS), max_size=8).map(
    lambda kinds: [make(number) for number, make in enumerate(kinds)]
)


@given(cards)
def test_every_device_is_unique_and_can_be_requested(listed):
    offer = plugin_devices.served_resources(listed)

    ids = Counter(device.id for served in offer.resources.values() for device in served)
    assert all(count == 1 for count in ids.values())
    for resource, served in offer.resources.items():
        assert request_parser.is_card_resource(resource)
        for device in served:
            card = offer.cards[plugin_devices.parse_unit(device.id).card]
            assert not card.changing
            assert device.healthy == card.gpu.health.healthy
            assert (card.pool is None) == (not resource.startswith(POOL))
            if slot := plugin_devices.parse_unit(device.id).slot:
                assert slot in {one.id for one in card.gpu.slots}
                assert card.pool is not None or request_parser.profile(resource) == slot.rpartition("-")[0]


@given(cards, cards)
def test_no_change_drops_a_resource(before, now):
    served = plugin_devices.served_resources(before).resources

    assert served.keys() <= plugin_devices.served_resources(now, served.keys()).resources.keys()


ENFORCED = {
    "a pool waits for its daemon": (pooled(), CardEnforcement("MPSClient", ready=False), {f"{POOL}blue": 0}),
    "a pool with its daemon": (pooled(), CardEnforcement("MPSClient", owned=True), {f"{POOL}blue": 100}),
    "a pool of whole cards waits for the end of a daemon": (
        pooled(sharing="Exclusive"),
        CardEnforcement("MPSClient", ready=False, owned=True),
        {f"{POOL}blue": 0},
    ),
    "without a pool only shares wait": (
        whole(),
        CardEnforcement("MPSClient", ready=False),
        {GPU: 1, PERCENT: 0},
    ),
}


@pytest.mark.parametrize(("card", "state", "expected"), ENFORCED.values(), ids=ENFORCED)
def test_shares_are_offered_only_while_they_can_be_enforced(card, state, expected):
    offer = plugin_devices.served_resources([replace(card, enforcement=state)])

    assert offer.healthy() == expected
