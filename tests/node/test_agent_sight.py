"""Holders of cards by any of the card's names, and decoding of pool ConfigMaps."""

import pytest

from croupier.api.core_v1 import ConfigMap
from croupier.api.meta import ObjectMeta
from croupier.core.ledgers.ledger import Part
from croupier.core.pods.pod import PodView
from croupier.node.agent import sight as agent_sight
from croupier.node.agent.sight import Pools
from croupier.node.cards.cards import Seen

CARDS = agent_sight.cards("n", [Seen(0, "GPU-0", "0000:10:00.0"), Seen(1, "GPU-1", "0000:11:00.0")])
FIRST, SECOND = CARDS


def pod(*cards: str) -> PodView:
    return PodView("ns/a", "uid", node="n", grant=tuple(Part(card, 50) for card in cards))


NAMES = {
    "by inventoryID": (pod(SECOND), {SECOND: ["ns/a"]}),
    "by index": (pod("n-gpu-1"), {SECOND: ["ns/a"]}),
    "a card that is gone": (pod("n-0000-99-00-0"), {"n-0000-99-00-0": ["ns/a"]}),
    "two": (pod(FIRST, SECOND), {FIRST: ["ns/a"], SECOND: ["ns/a"]}),
    "nothing": (pod(), {}),
}


@pytest.mark.parametrize(("held", "expected"), NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("alone", [True, False])
def test_a_pod_holds_the_card_of_its_allocation(held, expected, alone):
    assert agent_sight.holders("n", [held], CARDS, alone=alone) == expected


def test_without_a_ledger_a_counted_mig_device_counts_on_every_card():
    counted = pod("n-mig-1g.10gb-0")

    assert agent_sight.holders("n", [counted], CARDS, alone=True) == {FIRST: ["ns/a"], SECOND: ["ns/a"]}
    assert set(agent_sight.holders("n", [counted], CARDS, alone=False)) == {"n-mig-1g.10gb-0"}


def config_map(version: str = "1", **data: str) -> ConfigMap:
    meta = ObjectMeta(name="gpupool-p", labels={agent_sight.POOL: "p"}, resource_version=version)
    return ConfigMap(metadata=meta, data=data)


def test_each_version_of_a_pool_is_decoded_once_and_an_invalid_one_is_reported():
    maps = [config_map(inventoryIDs=f'["{FIRST}"]', allocation='{"mode": "TimeSlice"}')]
    pools = Pools(maps)

    (pool,), troubles = pools()
    assert (pool.name, pool.cards, pool.sharing, pool.slices) == ("p", frozenset({FIRST}), "TimeSlice", 8)
    assert not troubles
    assert pools()[0][0] is pool

    maps[0] = config_map("2", inventoryIDs="[]", allocation='{"mode": "Whatever"}')
    none, (trouble,) = pools()
    assert not none
    assert trouble.startswith("ConfigMap gpupool-p: inventoryIDs or allocation is missing or invalid")
