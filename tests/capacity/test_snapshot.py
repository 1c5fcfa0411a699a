"""The snapshot uses stored ledgers and counts the other nodes."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest_asyncio

from croupier.api import kinds
from croupier.capacity import snapshot
from croupier.core.ledger import overview
from croupier.core.model.card import CardGrant
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier_lab import nodes

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as connected:
        yield connected


async def add_node(api: Client, name: str, cards: str | None = "H100:2") -> None:
    wanted = nodes.SimulatedNode(name, "zone-a", nodes.parse_cards(cards) if cards else None)
    await api.create(kinds.NODES, nodes.manifest(wanted, datetime.now(UTC)))


def running(namespace: str, name: str, node: str, *, card: str = "", gpus: int = 1) -> dict[str, Any]:
    allocated = json.dumps([{"card": card, "index": 0, "percent": 100}])
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"gpu.mps.io/allocation": allocated} if card else {},
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
            ],
        },
    }


def record(name: str, holder: str) -> dict[str, Any]:
    card = {
        "id": f"{name}-x",
        "index": 0,
        "mode": "Percent",
        "epoch": 1,
        "healthy": True,
        "capacityPercent": 100,
    }
    return {"metadata": {"name": name}, "spec": {"cards": [{**card, "holders": {holder: 40}}]}}


async def test_stored_ledgers_are_used_and_others_are_counted(api, crds, clean_cluster, namespace):
    for name, cards in (("recorded", "H100:2"), ("counted", "H100:2"), ("bare", None)):
        await add_node(api, name, cards)
    await api.create(kinds.NODE_RESERVATIONS.raw, record("recorded", "team/job/u1"))
    made = await api.create(kinds.PODS, running(namespace, "ours", "counted", card="counted-gpu-1"))
    await api.create(kinds.PODS, running(namespace, "theirs", "counted"))

    seen = await snapshot.take(api, NOW)

    assert seen.ledgers.keys() == {"recorded", "counted"}
    assert seen.recorded == {"recorded"}
    assert seen.ledgers["recorded"].grant("team/job/u1") == (CardGrant("recorded-x", 40),)
    counted = seen.ledgers["counted"]
    assert counted.grant(f"{namespace}/ours/{made.metadata.uid}") == (CardGrant("counted-gpu-1", 100),)
    assert len(counted.holders()) == 2
    assert seen.pods.keys() >= {f"{namespace}/ours", f"{namespace}/theirs"}


async def test_pods_are_not_listed_if_every_ledger_is_stored(api, crds, clean_cluster, namespace):
    await add_node(api, "recorded")
    await api.create(kinds.NODE_RESERVATIONS.raw, record("recorded", "team/job/u1"))
    await api.create(kinds.PODS, running(namespace, "ours", "recorded"))

    assert (await snapshot.take(api, NOW)).pods == {}
    assert f"{namespace}/ours" in (await snapshot.take(api, NOW, with_pods=True)).pods


async def test_a_hold_of_a_bound_pod_is_bound_before_the_ledger_says_so(api, crds, clean_cluster, namespace):
    await add_node(api, "recorded")
    bound = await api.create(kinds.PODS, running(namespace, "ours", "recorded"))
    holder, waiting = f"{namespace}/ours/{bound.metadata.uid}", f"{namespace}/waiting/u2"
    stored = record("recorded", holder)
    stored["spec"]["cards"][0]["holders"][waiting] = 10
    stored["spec"]["held"] = dict.fromkeys((holder, waiting), "2030-01-01T00:02:00Z")
    await api.create(kinds.NODE_RESERVATIONS.raw, stored)

    seen = (await snapshot.take(api, NOW)).ledgers["recorded"]

    assert seen.held.keys() == {waiting}
    assert seen.holders() == {holder, waiting}


async def test_a_cluster_without_our_crds_is_counted_from_allocatable(private_lab):
    lab = await private_lab()
    async with api_client.connect(config.load(lab.kubeconfig)) as api:
        await add_node(api, "node-1", "H100:3")

        seen = await snapshot.take(api, NOW)

    sums = overview.summary(seen.ledgers["node-1"])
    assert (sums.cards.free, sums.cards.total, seen.reservations) == (3, 3, ())
