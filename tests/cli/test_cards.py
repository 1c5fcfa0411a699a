"""`croupier cards`, `pools`, `assign`, `unassign`, `drain`, `retire`."""

import os
import subprocess
from typing import Any

import pytest
import yaml

from croupier.api import kinds
from croupier.api.gpu.device import DRAIN, IGNORE, RETIRED
from croupier.api.gpu.pool import CONFIRMED
from croupier.core.pools.assignment import ASSIGNMENT
from tests.cli import env
from tests.cli.command import CROUPIER
from tests.cli.env import at_a_terminal, croupier, node

SECONDS = 20

SINCE = "2030-01-31T12:00:00Z"
CARD = "node-1-0000-65-00-0"


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    fields = {"type": kind, "status": status, "reason": reason, "message": message}
    return fields | {"lastTransitionTime": SINCE}


async def card(api, index: int = 0, **status: Any) -> str:
    """Create a GPUDevice of node-1 with its status."""
    name = f"node-1-0000-6{5 + index}-00-0"
    labels = {"gpu.deckhouse.io/node": "node-1", "gpu.deckhouse.io/device-index": str(index)}
    await api.create(kinds.GPU_DEVICES.raw, {"metadata": {"name": name, "labels": labels}})
    fields = {
        "nodeName": "node-1",
        "inventoryID": name,
        "state": "Unassigned",
        "phase": "Ready",
        "hardware": {"product": "Croupier-Simulated-70GB", "memoryMiB": 71680, "uuid": f"GPU-{index}"},
        "cut": {"enabled": False},
        **status,
    }
    await api.patch(kinds.GPU_DEVICES, name, {"status": fields}, subresource="status")
    return name


async def pool(api, name: str = "team-a", **status: Any) -> str:
    body = {"metadata": {"name": name}, "spec": {"allocation": {"mode": "MPS"}}}
    await api.create(kinds.GPU_POOLS.raw, body)
    if status:
        await api.patch(kinds.GPU_POOLS, name, {"status": status}, subresource="status")
    return name


async def recorded(api, *cards: dict[str, Any]) -> None:
    """The NodeReservation of node-1."""
    known = {"mode": "Percent", "epoch": 1, "healthy": True, "capacityPercent": 100}
    listed = [{**known, "index": index, **card} for index, card in enumerate(cards)]
    body = {"metadata": {"name": "node-1"}, "spec": {"cards": listed}}
    await api.create(kinds.NODE_RESERVATIONS.raw, body)


@pytest.fixture
def ask(cluster):
    return lambda *args, **more: croupier(*args, kubeconfig=cluster.kubeconfig, **more)


async def test_lists_all_cards_and_shows_one_in_detail(api, crds, clean_cluster, ask):
    await card(api)
    slots = [{"id": "2g.20gb-0", "profile": "2g.20gb", "start": 0, "size": 2}]
    await card(
        api,
        1,
        state="Faulted",
        phase="Faulted",
        cut={
            "enabled": True,
            "slots": slots,
            "target": "whole",
            "state": "Waiting",
            "message": "a pod holds it",
        },
        conditions=[condition("Faulted", "True", "CriticalXID", "XID 79: the card fell off the bus")],
    )

    table = ask("cards").out.splitlines()
    assert table[0].split()[:4] == ["CARD", "NODE", "INDEX", "STATE"]
    assert CARD in table[1]
    assert "1 × 2g.20gb (Waiting whole)" in table[2]
    assert "XID 79: the card fell off the bus" in table[2]

    faulted = ask("cards", "--state", "Faulted", "-o", "json").data
    assert [item["card"] for item in faulted] == ["node-1-0000-66-00-0"]
    details = ask("cards", "node-1/1").out
    assert "partitions 1 × 2g.20gb (Waiting whole): a pod holds it" in details
    assert "CriticalXID: XID 79" in details
    assert "held by" in details or "not in the ledger" in details

    missing = ask("cards", "node-9/9")
    assert (missing.code, "there is no card node-9/9" in missing.err) == (1, True)
    assert ask("cards", "--state", "Broken").code == 2


async def test_the_formats_of_a_list(api, crds, clean_cluster, ask):
    await card(api)
    await pool(api)

    header, first = (line.split() for line in ask("cards").out.splitlines())
    assert header == [
        *("CARD", "NODE", "INDEX", "STATE", "POOL", "PRODUCT", "PARTITIONS", "USED", "HEALTH"),
        *("SCHEDULING", "REASON"),
    ]
    assert first[4] == "-", "an empty column is shown"
    wide = ask("cards", "-o", "wide").out.splitlines()[0]
    assert all(header in wide for header in ("PHASE", "ENFORCED BY", "IDLE", "STRANGERS", "AGE"))
    assert ask("cards", "-o", "name").out == f"gpudevice.gpu.deckhouse.io/{CARD}\n"
    assert yaml.safe_load(ask("cards", "-o", "yaml").out) == ask("cards", "-o", "json").data
    assert ask("pools", "-o", "name").out == "gpupool.gpu.deckhouse.io/team-a\n"
    assert yaml.safe_load(ask("pools", "show", "team-a", "-o", "yaml").out)["pool"] == "team-a"
    assert ask("reservations", "-A", "-o", "name").out == ""
    assert ask("cards", "-o", "text").err == (
        "croupier: --output text: must be table, wide, json, yaml or name.\n"
    )


async def test_a_table_on_a_narrow_terminal_does_not_fold_a_value(api, crds, clean_cluster, cluster):
    await card(api)
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "COLUMNS": "40"}
    code, shown = at_a_terminal([*CROUPIER, "cards"], env=env)
    lines = shown.splitlines()

    assert (code, len(lines)) == (0, 3)
    assert lines[0].split() == ["CARD", "STATE", "HEALTH", "SCHEDULING"]
    assert lines[1].startswith(CARD)
    missing = "NODE, INDEX, POOL, PRODUCT, PARTITIONS, USED, REASON"
    assert lines[2] == f"Not shown at 40 columns: {missing}. Use -o wide."
    assert "\x1b" not in shown


def piped(command: list[str], env: dict[str, str]) -> str:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


async def test_output_that_is_piped_or_wide_has_all_columns(api, crds, clean_cluster, cluster):
    await card(api)
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "COLUMNS": "40"}

    assert "Croupier-Simulated-70GB" in piped([*CROUPIER, "cards"], env)
    assert "Croupier-Simulated-70GB" in at_a_terminal([*CROUPIER, "cards", "-o", "wide"], env=env)[1]


async def test_an_empty_list_suggests_what_may_be_missing(api, crds, clean_cluster, ask):
    assert "is `croupier node` running" in ask("cards").out


async def test_a_card_is_assigned_to_a_pool_and_unassigned(api, crds, clean_cluster, ask):
    await card(api)
    await pool(api)

    assert ask("assign", CARD, "team-b").err.startswith("croupier: there is no pool team-b")
    assert ask("assign", "node-1/0", "team-a", "--wait", "0").code == 0
    assert (await api.get(kinds.GPU_DEVICES, CARD)).metadata.annotations[ASSIGNMENT] == "team-a"

    late = ask("assign", CARD, "team-a", "--wait", "0.1")
    assert (late.code, "is not done after 0.1 s" in late.err) == (1, True)

    serving = {"state": "Assigned", "phase": "Assigned", "poolRef": {"name": "team-a"}}
    await api.patch(kinds.GPU_DEVICES, CARD, {"status": serving}, subresource="status")
    early = ask("assign", CARD, "team-a", "--wait", "0.1")
    assert (early.code, "the status of pool team-a does not list it yet" in early.err) == (1, True)

    counted = {"devices": [{"inventoryID": CARD}], "capacity": {"total": 100, "used": 0, "available": 100}}
    await api.patch(kinds.GPU_POOLS, "team-a", {"status": counted}, subresource="status")
    assert f"card {CARD} is assigned to pool team-a." in ask("assign", CARD, "team-a").out

    await pool(api, "team-b")
    moved = ask("assign", CARD, "team-b")
    assert (moved.code, "run `croupier unassign` first" in moved.err) == (2, True)

    held = condition("Occupied", "True", "InUse", "team/trainer holds 50 of it")
    await api.patch(kinds.GPU_DEVICES, CARD, {"status": {"conditions": [held]}}, subresource="status")
    busy = ask("unassign", CARD, "--wait", "0.1")
    assert (busy.code, "team/trainer holds 50 of it" in busy.err) == (1, True)
    assert ASSIGNMENT not in (await api.get(kinds.GPU_DEVICES, CARD)).metadata.annotations


async def test_a_declined_card_is_answered_with_the_reason_of_the_pool_that_was_asked_for(
    api, crds, clean_cluster, ask
):
    await pool(api)
    await pool(api, "team-b")
    await api.create(kinds.GPU_NODE_INVENTORIES, {"metadata": {"name": "node-1"}})
    others = [
        {"pool": name, "reason": reason, "inventoryIDs": [CARD]}
        for name, reason in (("team-b", "AwaitingApproval"), ("team-a", "OutOfSelector"))
    ]
    status = {"status": {"pools": {"pending": others}}}
    await api.patch(kinds.GPU_NODE_INVENTORIES, "node-1", status, subresource="status")
    await card(api)
    before = ask("assign", CARD, "team-a", "--wait", "0.1")
    assert before.err == f"croupier: card {CARD} is not done after 0.1 s: OutOfSelector team-a\n"

    why = f"card {CARD} does not match the nodeSelector or deviceSelector of pool team-a"
    seen = {"candidates": [{"inventoryID": CARD, "node": "node-1", "reason": why}]}
    await api.patch(kinds.GPU_POOLS, "team-a", {"status": seen}, subresource="status")
    assert ask("assign", CARD, "team-a", "--wait", "0.1").err.endswith(f"after 0.1 s: {why}\n")

    declined = {"declined": {"name": "team-a", "reason": "OutOfSelector", "message": why}}
    held = [condition("Occupied", "True", "InUse", "team/trainer holds 50 of it")]
    await api.patch(
        kinds.GPU_DEVICES, CARD, {"status": {**declined, "conditions": held}}, subresource="status"
    )
    answer = ask("assign", CARD, "team-a", "--wait", "0.1")
    serves = "the card serves as before until the pool takes it"
    assert (answer.code, answer.err) == (
        1,
        f"croupier: card {CARD} is not done after 0.1 s: {why}; {serves}\n",
    )


async def test_a_card_is_drained_and_retired(api, crds, clean_cluster, ask):
    await card(api, conditions=[condition("Occupied", "False", "Withdrawn")])

    assert "is drained" in ask("drain", CARD, "--reason", "swap the fan").out
    assert (await api.get(kinds.GPU_DEVICES, CARD)).metadata.annotations[DRAIN] == "swap the fan"
    assert "is allocatable again" in ask("drain", CARD, "--undo").out
    assert DRAIN not in (await api.get(kinds.GPU_DEVICES, CARD)).metadata.annotations

    ask("retire", CARD, "--wait", "0", "--reason", "worn out")
    retired = (await api.get(kinds.GPU_DEVICES, CARD)).metadata
    assert (retired.labels[IGNORE], retired.annotations[RETIRED]) == ("true", "worn out")
    ask("retire", CARD, "--undo", "--wait", "0")
    back = (await api.get(kinds.GPU_DEVICES, CARD)).metadata
    assert (IGNORE in back.labels, RETIRED in back.annotations) == (False, False)


async def test_drain_names_the_pods_it_waits_for(api, crds, clean_cluster, ask):
    await node(api, "node-1", "H100:1")
    await card(api)
    pods = {f"team-a/train-{number}/u": 10 for number in range(7)}
    await recorded(api, {"id": CARD, "holders": pods})

    named = "team-a/train-0, team-a/train-1, team-a/train-2, team-a/train-3, team-a/train-4 and 2 more"
    at_once = ask("drain", CARD, "--wait", "0")
    assert at_once.out == f"card {CARD}: change written, it waits for pods {named}.\n"
    late = ask("drain", CARD, "--wait", "0.1")
    assert (late.code, late.err) == (
        1,
        f"croupier: card {CARD} is not done after 0.1 s: it waits for pods {named}\n",
    )
    undone = ask("drain", CARD, "--undo", "--wait", "0")
    assert undone.out == f"card {CARD}: change written, not waiting for it.\n"


async def test_drained_and_retired_cards_read_the_same_everywhere(api, crds, clean_cluster, namespace, ask):
    await node(api, "node-1", "H100:2")
    drained, retired = await card(api), await card(api, 1)
    ask("drain", drained, "--wait", "0", "--reason", "swap the fan")
    ask("retire", retired, "--wait", "0", "--reason", "worn out")

    first, second = ask("cards").out.splitlines()[1:]
    assert "Drained" in first.split()
    assert "swap the fan" in first
    assert "Retired" in second.split()
    assert "worn out" in second
    assert "scheduling drained: swap the fan; it takes no new pods" in ask("cards", drained).out
    data = ask("cards", "-o", "json").data
    assert data[0]["withheld"] == {"state": "Drained", "reason": "swap the fan"}
    assert data[1]["ledger"]["withheld"] == {"state": "Retired", "reason": "worn out"}

    (row,) = ask("ledger").out.splitlines()[1:]
    assert row.split()[:2] == ["node-1", "0/1"], "a retired card is no capacity"
    assert "1 drained, 1 retired" in row
    details = ask("ledger", "node-1").out
    assert "100 % free" not in details
    assert ", drained: swap the fan" in details
    assert ", retired: worn out" in details
    assert ask("ledger", "-o", "json").data[0]["withheld"] == {"Drained": 1, "Retired": 1}

    pod = env.pod(namespace, gpus=1)
    why = "has no card that takes new pods (1 card is drained: swap the fan; 1 card is retired: worn out)"
    assert why in ask("what-if", "-f", "-", stdin=yaml.safe_dump(pod)).out
    await api.create(kinds.PODS.raw, pod)
    assert why in ask("explain", "pod", f"{namespace}/trainer").out


async def test_pools_show_capacity_and_problems(api, crds, clean_cluster, ask):
    assert "There is no GPUPool." in ask("pools").out
    await pool(
        api,
        capacity={"total": 200, "used": 50, "booked": 20, "available": 130, "unit": "Percent"},
        devices=[{"inventoryID": CARD, "node": "node-1", "state": "Assigned"}],
        nodes=[{"name": "node-1", "totalDevices": 2, "assignedDevices": 1}],
        candidates=[{"inventoryID": "node-1-0000-66-00-0", "node": "node-1", "reason": "AwaitingApproval"}],
        conditions=[condition("Misconfigured", "True", "Drift", "card 0 has other partitions")],
    )

    row = ask("pools").out.splitlines()[1].split()
    assert row[:9] == ["team-a", "MPS", "Percent", "1", "1", "200", "50", "20", "130"]
    assert "Misconfigured: card 0 has other partitions" in ask("pools").out
    details = ask("pools", "show", "team-a").out
    assert "130 of 200 Percent free, 50 used, 20 booked" in details
    assert "candidate node-1-0000-66-00-0: AwaitingApproval" in details
    assert ask("pools", "-o", "json").data[0]["status"]["capacity"]["total"] == 200

    assert "confirmed" in ask("pools", "confirm", "team-a").out
    confirmed = await api.get(kinds.GPU_POOLS, "team-a")
    assert confirmed.metadata.annotations[CONFIRMED] == str(confirmed.metadata.generation)
    await pool(api, "team-b")
    assert "nothing to confirm" in ask("pools", "confirm", "team-b").out
    assert ask("pools", "confirm", "team-c").code == 1


async def test_help_shows_examples(api, ask):
    for verb in ("cards", "pools", "assign", "unassign", "drain", "retire"):
        assert f"croupier {verb}" in ask(verb, "--help").out
