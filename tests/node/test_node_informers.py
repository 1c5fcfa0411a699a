"""Holders of cards by any of the card's names, and decoding of pool ConfigMaps."""

import pytest

from croupier.api.core_v1 import ConfigMap
from croupier.api.gpu.pool_config import POOL_LABEL
from croupier.api.meta import ObjectMeta
from croupier.core.model.card import CardGrant
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.pod_view import PodView
from croupier.core.model.sharing import Sharing
from croupier.node import node_informers as agent_sight
from croupier.node.node_informers import PoolConfigMaps

CARDS = agent_sight.cards_by_id(
    "n", [GpuCard(0, "0000:10:00.0", "GPU-0"), GpuCard(1, "0000:11:00.0", "GPU-1")]
)
FIRST, SECOND = CARDS


def pod(*cards: str) -> PodView:
    return PodView("ns/a", "uid", node="n", grant=tuple(CardGrant(card, 50) for card in cards))


NAMES = {
    "by inventoryID": (pod(SECOND), {SECOND: ["ns/a"]}),
    "by index": (pod("n-gpu-1"), {SECOND: ["ns/a"]}),
    "a card that is gone": (pod("n-0000-99-00-0"), {"n-0000-99-00-0": ["ns/a"]}),
    "two": (pod(FIRST, SECOND), {FIRST: ["ns/a"], SECOND: ["ns/a"]}),
    "nothing": (pod(), {}),
}


@pytest.mark.parametrize(("held", "expected"), NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("without_ledger", [True, False])
def test_a_pod_holds_the_card_of_its_allocation(held, expected, without_ledger):
    assert agent_sight.holders_by_card("n", [held], CARDS, without_ledger=without_ledger) == expected


def test_without_a_ledger_a_counted_mig_device_counts_on_every_card():
    counted = pod("n-mig-1g.10gb-0")

    assert agent_sight.holders_by_card("n", [counted], CARDS, without_ledger=True) == {
        FIRST: ["ns/a"],
        SECOND: ["ns/a"],
    }
    assert set(agent_sight.holders_by_card("n", [counted], CARDS, without_ledger=False)) == {
        "n-mig-1g.10gb-0"
    }


def config_map(version: str = "1", **data: str) -> ConfigMap:
    meta = ObjectMeta(name="gpupool-p", labels={POOL_LABEL: "p"}, resource_version=version)
    return ConfigMap(metadata=meta, data=data)


def test_each_version_of_a_pool_is_decoded_once_and_an_invalid_one_is_reported():
    maps = [config_map(inventoryIDs=f'["{FIRST}"]', allocation='{"mode": "TimeSlice"}')]
    pools = PoolConfigMaps(maps)

    (pool,), troubles = pools()
    assert (pool.name, pool.cards, pool.sharing) == ("p", frozenset({FIRST}), Sharing("TimeSlice", slices=8))
    assert not troubles
    assert pools()[0][0] is pool

    maps[0] = config_map("2", inventoryIDs="[]", allocation='{"mode": "Whatever"}')
    none, (trouble,) = pools()
    assert not none
    assert trouble.startswith("ConfigMap gpupool-p: inventoryIDs or allocation is missing or invalid")
