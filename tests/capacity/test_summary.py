"""What `kubectl get nodereservations` shows is written together with the holders, so it is never outdated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from croupier.api import kinds
from croupier.api.mps.ledger import CapacitySummary, FreeCapacity
from croupier.core.model.card_request import CardShares, MigDevices, PoolUnits
from croupier.core.model.refusal import Refusal
from croupier.kube.client.api_client import Client
from croupier.kube.client.resource import Raw
from croupier.kube.client.transport import ApiRequest
from tests.capacity.env import NODE, capacity_env, claim, exclusive, mig, node, percent, pod, time_sliced

RAW = kinds.NODE_RESERVATIONS.raw
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
COLUMNS = ("Cards", "Holders", "Free cards", "Free percent", "Free slices")

CLAIMS = {
    "half a card": ((percent(0), percent(1)), CardShares(1, 50), (2, 0, 2, 200, None), (2, 1, 1, 150, None)),
    "a whole card": (
        (exclusive(0), exclusive(1)),
        CardShares(1),
        (2, 0, 2, None, None),
        (2, 1, 1, None, None),
    ),
    "time slices": (
        (time_sliced(0, pool="slices"),),
        PoolUnits("slices", 3),
        (1, 0, None, None, 8),
        (1, 1, None, None, 5),
    ),
    "a MIG device": (
        (mig(0), percent(1)),
        MigDevices("1g.10gb", 1),
        (2, 0, 1, 100, None),
        (2, 1, 1, 100, None),
    ),
}
"""Cards, claim, and the columns before and after it."""


@pytest.fixture
def kubeconfig(cluster: Any, clean_cluster: None) -> Path:
    path: Path = cluster.kubeconfig
    return path


async def shown(api: Client) -> tuple[Any, ...]:
    """The columns that the API server shows, read once."""
    request = ApiRequest("GET", kinds.NODE_RESERVATIONS.path(None, NODE), accept=TABLE)
    table = msgspec.json.decode(await api.raw(request))
    names = [column["name"] for column in table["columnDefinitions"]]
    (row,) = table["rows"]
    cells = dict(zip(names, row["cells"], strict=True))
    return tuple(cells[column] for column in COLUMNS)


async def as_an_earlier_version(api: Client, holder: str, share: int) -> None:
    """Hold a share as a program does that does not know the summary and keeps it as it is."""
    raw = await api.get(RAW, NODE)
    raw["spec"]["cards"][0].setdefault("holders", {})[holder] = share
    await api.update(RAW, raw)


@pytest.mark.parametrize(("cards", "want", "before", "after"), CLAIMS.values(), ids=CLAIMS)
async def test_the_columns_are_right_when_a_claim_returns(kubeconfig, cards, want, before, after):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node(*cards))
        assert await shown(env.api) == before

        assert not isinstance(await env.manager.claim(NODE, claim(pod(), want)), Refusal)
        assert await shown(env.api) == after

        await env.manager.release(pod(), NODE)
        assert await shown(env.api) == before
        assert env.count("update") == 2, "the summary costs no write of its own"


async def test_the_number_of_cards_is_right_when_cards_change(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())

        await env.manager.amend(NODE, lambda ledger: replace(ledger, cards=(*ledger.cards, percent(2))))

        assert await shown(env.api) == (3, 0, 3, 300, None)


async def test_a_summary_that_another_program_left_behind_is_repaired_by_the_next_change(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())
        await as_an_earlier_version(env.api, pod(1), 30)
        assert await shown(env.api) == (2, 0, 2, 200, None), "an earlier version does not count"

        await env.manager.claim(NODE, claim(pod(2)))

        assert await shown(env.api) == (2, 2, 0, 120, None)


async def test_a_change_without_effect_repairs_the_summary_once(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())
        await as_an_earlier_version(env.api, pod(1), 30)

        for _ in range(3):
            await env.manager.release(pod(9), NODE)

        assert await shown(env.api) == (2, 1, 1, 170, None)
        assert env.count("update") == 2, "one by the test, one repair"


async def test_a_ledger_of_an_earlier_version_gets_its_summary(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())
        raw: Raw = await env.api.get(RAW, NODE)
        del raw["spec"]["summary"]
        await env.api.update(RAW, raw)

        await env.manager.claim(NODE, claim(pod()))

        stored = await env.api.get(kinds.NODE_RESERVATIONS, NODE)
        assert stored.spec.summary == CapacitySummary(
            cards=2, holders=1, free=FreeCapacity(cards=1, percent=150)
        )
