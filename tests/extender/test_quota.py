"""A real ResourceQuota on a pool holds with a real scheduler, whatever the annotations of a pod say."""

from typing import Any

from croupier.api import kinds
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import smallest_share
from croupier.core.model.card import LedgerCard
from croupier.core.pods.request_parser import CARDS, LEDGER, POOL, RATIO
from croupier.kube.client.resource import Resource
from tests import polling
from tests.extender.env import ExtenderEnv, manifest

QUOTAS: Resource[dict[str, Any]] = Resource("", "v1", "resourcequotas", "ResourceQuota", True, dict)
TEAM = f"{POOL}team"
NODE = "node-1"


async def test_one_unit_of_a_percent_pool_is_not_a_whole_card(table: ExtenderEnv):
    """The pod was created past the webhook, so only the ledger sees the contradiction."""
    await _percent_pool(table)
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {f"requests.{TEAM}": "5"}}}
    await table.api.create(QUOTAS, quota, namespace=table.namespace)
    try:
        await polling.until_async(lambda: _uses(table, "0"), "the quota to be counted")
        async with table.extender():
            await _ask(table, "bypass", "1", {CARDS: "1", RATIO: "100"})
            said = await table.sentence("bypass", "they must agree")
            assert "asks for 1 of gpu.deckhouse.io/team, which counts percent of a card" in said

            await _ask(table, "honest", "4", {})
            _, grant = await table.placed("honest")

        assert [part.share for part in grant] == [4]
        await polling.until_async(lambda: _uses(table, "5"), "the quota to count both pods")
        assert _used(table) == 4
    finally:
        await table.api.delete(QUOTAS, "team", namespace=table.namespace)


async def test_tiny_shares_do_not_close_a_card(table: ExtenderEnv):
    """64 holders of 1 % would leave 36 % that no pod can get."""
    await table.node(NODE, known=False)
    card = LedgerCard(f"{NODE}-0", 0, smallest=smallest_share.DEFAULT)
    await table.manager.open(NODE, Ledger(NODE, (card,)))
    async with table.extender():
        await table.pod("tiny", cards="1", ratio="1")
        said = await table.sentence("tiny", "below the smallest share")
        await table.pod("small", cards="1", ratio="3")
        _, grant = await table.placed("small")

    assert "ask for at least 3 % of each card, or have the setting sharing.minPercent lowered" in said
    assert [part.share for part in grant] == [3]


async def _percent_pool(table: ExtenderEnv) -> None:
    await table.node(NODE, known=False)
    units = {"status": {key: {TEAM: "200"} for key in ("capacity", "allocatable")}}
    await table.api.patch(kinds.NODES, NODE, units, subresource="status")
    cards = tuple(LedgerCard(f"{NODE}-{index}", index, pool="team") for index in range(2))
    await table.manager.open(NODE, Ledger(NODE, cards))


async def _ask(table: ExtenderEnv, name: str, units: str, annotations: dict[str, str]) -> None:
    body = manifest(name)
    body["metadata"]["annotations"] = annotations
    body["spec"]["containers"][0]["resources"]["limits"] = {TEAM: units, LEDGER: "1"}
    await table.api.create(kinds.PODS, body, namespace=table.namespace)


async def _uses(table: ExtenderEnv, amount: str) -> bool:
    found = await table.api.get(QUOTAS, "team", namespace=table.namespace)
    return bool(found.get("status", {}).get("used", {}).get(f"requests.{TEAM}") == amount)


def _used(table: ExtenderEnv) -> int:
    ledger = table.manager.ledger(NODE)
    assert ledger is not None
    return sum(card.used for card in ledger.cards)
