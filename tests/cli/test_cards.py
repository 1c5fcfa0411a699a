"""`croupier cards`, `pools`, `assign`, `unassign`, `drain`, `retire`: what a person sees and decides."""

from typing import Any

import pytest

from croupier.api import kinds
from croupier.api.gpu.device import ASSIGNMENT, DRAIN, IGNORE
from croupier.api.gpu.pool import CONFIRMED
from tests.cli.asking import croupier

SINCE = "2030-01-31T12:00:00Z"
CARD = "node-1-0000-65-00-0"


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    said = {"type": kind, "status": status, "reason": reason, "message": message}
    return said | {"lastTransitionTime": SINCE}


async def card(api, index: int = 0, **status: Any) -> str:
    """A card of node-1 as the controllers would have written it."""
    name = f"node-1-0000-6{5 + index}-00-0"
    labels = {"gpu.deckhouse.io/node": "node-1", "gpu.deckhouse.io/device-index": str(index)}
    await api.create(kinds.GPU_DEVICES.raw, {"metadata": {"name": name, "labels": labels}})
    said = {
        "nodeName": "node-1",
        "inventoryID": name,
        "state": "Unassigned",
        "phase": "Ready",
        "hardware": {"product": "Croupier-Simulated-70GB", "memoryMiB": 71680, "uuid": f"GPU-{index}"},
        "cut": {"enabled": False},
        **status,
    }
    await api.patch(kinds.GPU_DEVICES, name, {"status": said}, subresource="status")
    return name


async def pool(api, name: str = "team-a", **status: Any) -> str:
    body = {"metadata": {"name": name}, "spec": {"allocation": {"mode": "MPS"}}}
    await api.create(kinds.GPU_POOLS.raw, body)
    if status:
        await api.patch(kinds.GPU_POOLS, name, {"status": status}, subresource="status")
    return name


@pytest.fixture
def ask(cluster):
    return lambda *args: croupier(*args, kubeconfig=cluster.kubeconfig)


async def test_every_card_is_listed_and_one_is_told_in_full(api, crds, clean_cluster, ask):
    await card(api)
    slots = [{"id": "2g.20gb-0", "profile": "2g.20gb", "start": 0, "size": 2}]
    await card(
        api,
        1,
        state="Faulted",
        phase="Faulted",
        cut={"enabled": True, "slots": slots, "target": "whole", "state": "Waiting", "message": "it is held"},
        conditions=[condition("Faulted", "True", "CriticalXID", "XID 79: the card fell off the bus")],
    )

    table = ask("cards").out.splitlines()
    assert table[0].split()[:4] == ["CARD", "NODE", "INDEX", "STATE"]
    assert CARD in table[1]
    assert "1 × 2g.20gb (Waiting whole)" in table[2]
    assert "XID 79: the card fell off the bus" in table[2]

    assert [one["card"] for one in ask("cards", "--state", "Faulted", "-o", "json").data] == [
        "node-1-0000-66-00-0"
    ]
    told = ask("cards", "node-1/1").out
    assert "cut        1 × 2g.20gb (Waiting whole): it is held" in told
    assert "CriticalXID: XID 79" in told
    assert "held by" in told or "ledger does not have it" in told

    missing = ask("cards", "node-9/9")
    assert (missing.code, "there is no card node-9/9" in missing.err) == (2, True)
    assert ask("cards", "--state", "Broken").code == 2


async def test_a_cluster_without_cards_says_what_may_be_missing(api, crds, clean_cluster, ask):
    assert "does `croupier node` run" in ask("cards").out


async def test_a_card_is_given_to_a_pool_and_taken_back(api, crds, clean_cluster, ask):
    await card(api)
    await pool(api)

    assert ask("assign", CARD, "team-b").err.startswith("croupier: there is no pool team-b")
    assert ask("assign", "node-1/0", "team-a", "--wait", "0").code == 0
    assert (await api.get(kinds.GPU_DEVICES, CARD)).metadata.annotations[ASSIGNMENT] == "team-a"

    late = ask("assign", CARD, "team-a", "--wait", "0.1")
    assert (late.code, "waits still" in late.err) == (1, True)

    serving = {"state": "Assigned", "phase": "Assigned", "poolRef": {"name": "team-a"}}
    await api.patch(kinds.GPU_DEVICES, CARD, {"status": serving}, subresource="status")
    early = ask("assign", CARD, "team-a", "--wait", "0.1")
    assert (early.code, "pool team-a has not counted it yet" in early.err) == (1, True)

    counted = {"devices": [{"inventoryID": CARD}], "capacity": {"total": 100, "used": 0, "available": 100}}
    await api.patch(kinds.GPU_POOLS, "team-a", {"status": counted}, subresource="status")
    assert f"card {CARD} serves pool team-a." in ask("assign", CARD, "team-a").out

    await pool(api, "team-b")
    moved = ask("assign", CARD, "team-b")
    assert (moved.code, "`croupier unassign` it first" in moved.err) == (2, True)

    held = condition("Occupied", "True", "InUse", "team/trainer holds 50 of it")
    await api.patch(kinds.GPU_DEVICES, CARD, {"status": {"conditions": [held]}}, subresource="status")
    busy = ask("unassign", CARD, "--wait", "0.1")
    assert (busy.code, "team/trainer holds 50 of it" in busy.err) == (1, True)
    assert ASSIGNMENT not in (await api.get(kinds.GPU_DEVICES, CARD)).metadata.annotations


async def test_a_card_is_drained_and_retired(api, crds, clean_cluster, ask):
    await card(api, conditions=[condition("Occupied", "False", "Withdrawn")])

    assert "is drained" in ask("drain", CARD, "--reason", "swap the fan").out
    assert (await api.get(kinds.GPU_DEVICES, CARD)).metadata.annotations[DRAIN] == "swap the fan"
    assert "is given out again" in ask("drain", CARD, "--undo").out
    assert DRAIN not in (await api.get(kinds.GPU_DEVICES, CARD)).metadata.annotations

    ask("retire", CARD, "--wait", "0")
    assert (await api.get(kinds.GPU_DEVICES, CARD)).metadata.labels[IGNORE] == "true"


async def test_pools_say_what_they_can_give_and_why_not(api, crds, clean_cluster, ask):
    assert "There is no GPUPool." in ask("pools").out
    await pool(
        api,
        capacity={"total": 200, "used": 50, "booked": 20, "available": 130, "unit": "Percent"},
        devices=[{"inventoryID": CARD, "node": "node-1", "state": "Assigned"}],
        nodes=[{"name": "node-1", "totalDevices": 2, "assignedDevices": 1}],
        candidates=[{"inventoryID": "node-1-0000-66-00-0", "node": "node-1", "reason": "AwaitingApproval"}],
        conditions=[condition("Misconfigured", "True", "Drift", "card 0 is cut otherwise")],
    )

    row = ask("pools").out.splitlines()[1].split()
    assert row[:9] == ["team-a", "MPS", "Percent", "1", "1", "200", "50", "20", "130"]
    assert "Misconfigured: card 0 is cut otherwise" in ask("pools").out
    told = ask("pools", "show", "team-a").out
    assert "130 of 200 Percent free, 50 used, 20 booked" in told
    assert "could join: node-1-0000-66-00-0: AwaitingApproval" in told
    assert ask("pools", "-o", "json").data[0]["status"]["capacity"]["total"] == 200

    assert "confirmed" in ask("pools", "confirm", "team-a").out
    found = await api.get(kinds.GPU_POOLS, "team-a")
    assert found.metadata.annotations[CONFIRMED] == str(found.metadata.generation)
    await pool(api, "team-b")
    assert "nothing to confirm" in ask("pools", "confirm", "team-b").out
    assert ask("pools", "confirm", "team-c").code == 2


async def test_help_shows_how(api, ask):
    for verb in ("cards", "pools", "assign", "unassign", "drain", "retire"):
        assert f"croupier {verb}" in ask(verb, "--help").out
