"""The pool controller on a real API server: capacity, maintenance, rollout, drift and deletion."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest_asyncio

from croupier.admission import pools as admission_pools
from croupier.api import kinds
from croupier.api.gpu.pool import POOL_FINALIZER
from croupier.core.model.refusal import Refusal
from croupier.core.pods.request_parser import POOL
from croupier.core.pools import admission as pool_admission
from croupier.core.pools.admission import PodRequester
from croupier.kube.client import config
from croupier.kube.client.api_client import Selection
from croupier.kube.client.errors import NotFound
from tests.controllers.pool_env import PoolEnv, condition, pool_env

MIG = {"mode": "MIG", "migProfile": "1g.10gb"}
TAINT = {"key": "gpu", "value": "team-a", "effect": "NoSchedule"}
FOREIGN = {"key": "maintenance", "value": "rack-7", "effect": "NoSchedule"}


@pytest_asyncio.fixture
async def pools(cluster: Any, shared_namespace: str) -> AsyncIterator[PoolEnv]:
    async with pool_env(config.load(cluster.kubeconfig), shared_namespace) as made:
        yield made


async def test_the_status_of_a_pool(pools: PoolEnv) -> None:
    await pools.node("gpu-1", taints=(FOREIGN,))
    await pools.node("gpu-2")
    await pools.pool("team-a", scheduling={"taints": [TAINT]})
    first = await pools.card("gpu-1", 0, "team-a")
    others = [await pools.card("gpu-1", 1, "team-a"), await pools.card("gpu-2", 0, "team-a")]
    waiting = await pools.card("gpu-2", 1)
    await pools.runs("trainer", "gpu-1", first, "team-a")
    pools.bookings.promised["team-a"] = 1

    async with pools.works():
        await pools.becomes("team-a", "Available", "True Serving")

        async def counted() -> bool:
            numbers = (await pools.get("team-a")).status.capacity
            return numbers is not None and (numbers.total, numbers.used, numbers.booked) == (3, 1, 1)

        await pools.eventually(counted, "three cards, one held, one booked")
        found = await pools.get("team-a")
        assert found.status.capacity is not None
        assert (found.status.capacity.available, found.status.capacity.unit) == (1, "Card")
        assert POOL_FINALIZER in found.metadata.finalizers
        assert [device.inventory_id for device in found.status.devices] == sorted([first, *others])
        assert [(node.name, node.total_devices, node.assigned_devices) for node in found.status.nodes] == [
            ("gpu-1", 2, 2),
            ("gpu-2", 2, 1),
        ]
        assert [(card.inventory_id, card.reason) for card in found.status.candidates] == [
            (
                waiting,
                f"card {waiting} matches pool team-a; to assign it, annotate it with "
                "gpu.deckhouse.io/assignment=team-a",
            )
        ]

        served = await pools.config("team-a")
        assert served is not None
        assert json.loads(served.data["inventoryIDs"]) == sorted([first, *others])
        assert json.loads(served.data["allocation"]) == {"mode": "Exclusive"}
        assert served.metadata.labels["gpu.deckhouse.io/pool"] == "team-a"

        async def marked() -> bool:
            node = await pools.node_now("gpu-1")
            label = node.metadata.labels.get("pool.gpu.deckhouse.io/team-a")
            return label == "" and {taint.key for taint in node.spec.taints} == {"gpu", "maintenance"}

        await pools.eventually(marked, "the node to have label and taints")
        assert pools.metric("gpupool_capacity_available", pool="team-a") == 1
        assert pools.metric("gpupool_assignments", pool="team-a") == 3
        assert pools.metric("gpupool_node_slots", pool="team-a", node="gpu-1") == 2
        assert pools.metric("croupier_pool_condition", pool="team-a", condition="Maintenance") == 0
        await pools.rests("team-a")


async def test_conditions_name_the_generation_that_they_judge(pools: PoolEnv, cluster: Any) -> None:
    """`kubectl wait` compares the generations, and so ignores a condition of the old spec."""

    def available() -> bool:
        wait = ("wait", "--for=condition=Available", "gpupool/team-a", "--timeout=1s")
        return bool(cluster.kubectl(*wait, check=False).returncode == 0)

    await pools.node("gpu-1")
    await pools.pool("team-a")
    await pools.card("gpu-1", 0, "team-a")
    async with pools.works():
        await pools.becomes("team-a", "Available", "True Serving")
        await pools.rests("team-a")
    assert await _generations(pools) == (1, 1, {1})
    assert await asyncio.to_thread(available)

    await pools.api.patch(kinds.GPU_POOLS, "team-a", {"spec": {"scheduling": {"strategy": "Spread"}}})
    assert await _generations(pools) == (2, 1, {1}), "no controller runs"
    assert await pools.condition("team-a", "Available") == "True Serving"
    assert not await asyncio.to_thread(available), "this condition was decided from the old spec"

    async with pools.works():

        async def judged() -> bool:
            return await _generations(pools) == (2, 2, {2})

        await pools.eventually(judged, "the new spec to be judged")
        assert await asyncio.to_thread(available)
        await pools.rests("team-a")


async def _generations(pools: PoolEnv) -> tuple[int, int | None, set[int | None]]:
    """That of the pool, of its status, and of its conditions."""
    found = await pools.get("team-a")
    judged = {condition.observed_generation for condition in found.status.conditions}
    return found.metadata.generation, found.status.observed_generation, judged


async def test_a_changed_pool_drains_changes_its_cards_and_opens(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    await pools.pool("team-a")
    first = await pools.card("gpu-1", 0, "team-a")
    second = await pools.card("gpu-1", 1, "team-a")
    for card in (first, second):
        await pools.is_cut(card)
    await pools.runs("trainer", "gpu-1", first, "team-a")

    async with pools.works():
        await pools.becomes("team-a", "Available", "True Serving")
        await pools.set_allocation("team-a", **MIG)
        await pools.becomes("team-a", "Maintenance", "True Draining")
        assert f"{pools.namespace}/trainer holds card {first}" in await pools.message("team-a", "Maintenance")
        assert (await pools.get("team-a")).status.allocation == await _allocation(pools, "Exclusive")

        await pools.ends("trainer")
        for card in (first, second):
            await pools.occupied(card, "Withdrawn")
        await pools.becomes("team-a", "Maintenance", "True Rebuilding")
        assert (await pools.get("team-a")).status.allocation == await _allocation(pools, "MIG")
        served = await pools.config("team-a")
        assert served is not None
        assert json.loads(served.data["allocation"]) == MIG

        for card in (first, second):
            await pools.is_cut(card, "1g.10gb", 7, state="Applied")
        await pools.becomes("team-a", "Maintenance", "False Serving")
        for card in (first, second):
            await pools.occupied(card, "Free")

        async def counts_slots() -> bool:
            numbers = (await pools.get("team-a")).status.capacity
            return numbers is not None and (numbers.total, numbers.unit) == (14, "MIG")

        await pools.eventually(counts_slots, "fourteen MIG devices")
        await pools.eventually(lambda: _recorded(pools, {"Maintenance", "MaintenanceEnded"}), "both Events")
        await pools.rests("team-a")


async def test_a_changed_enforcement_applies_after_the_last_share_ended(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    await pools.pool("team-a", mode="MPS")
    card = await pools.card("gpu-1", 0, "team-a")
    await pools.runs("trainer", "gpu-1", card, "team-a", percent=30)

    async with pools.works():
        await pools.becomes("team-a", "Available", "True Serving")
        assert "enforces" not in await pools.message("team-a", "Available")
        await pools.set_allocation("team-a", mode="MPS", enforcement="None")
        await pools.becomes("team-a", "Maintenance", "True Draining")
        await pools.says(
            "team-a",
            "Maintenance",
            "the pool changes from MPS to MPS with enforcement None",
            f"{pools.namespace}/trainer holds 30 % of card {card}",
        )
        await pools.becomes("team-a", "Available", "False Maintenance")
        assert (await _allocation(pools, "MPS")).enforcement == "MPS"
        assert await _served_enforcement(pools) == "MPS"

        await pools.ends("trainer")
        await pools.occupied(card, "Withdrawn")
        await pools.becomes("team-a", "Maintenance", "False Serving")
        assert (await _allocation(pools, "MPS")).enforcement == "None"

        async def served() -> bool:
            return bool(await _served_enforcement(pools) == "None")

        await pools.eventually(served, "the agents to read enforcement None")
        await pools.rests("team-a")
        await pools.occupied(card, "Free")
        await pools.becomes("team-a", "Available", "True Serving")
        assert not await _drained(pools, card)


async def test_a_pool_says_that_nothing_enforces_its_shares(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    await pools.pool("team-a", allocation={"mode": "MPS", "enforcement": "None"})
    await pools.card("gpu-1", 0, "team-a")

    async with pools.works():
        await pools.becomes("team-a", "Available", "True Serving")
        await pools.says(
            "team-a",
            "Available",
            "100 of 100 units are available; the pool has enforcement None, so nothing enforces its shares",
        )


async def test_a_card_whose_shares_cannot_be_enforced_is_not_counted(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    await pools.pool("team-a", mode="MPS")
    card = await pools.card("gpu-1", 0, "team-a")
    await pools.is_enforced(card, ready=False)

    async with pools.works():
        await pools.becomes("team-a", "Available", "False NoCapacity")
        assert "its shares cannot be enforced now" in await pools.message("team-a", "Available")
        await pools.is_enforced(card, ready=True)
        await pools.becomes("team-a", "Available", "True Serving")


async def test_a_failed_change_is_rolled_back_and_waits_for_a_confirmation(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    await pools.pool("team-a")
    card = await pools.card("gpu-1", 0, "team-a")
    await pools.is_cut(card)

    async with pools.works():
        await pools.becomes("team-a", "Available", "True Serving")
        await pools.set_allocation("team-a", **MIG)
        await pools.becomes("team-a", "Maintenance", "True Draining")
        await pools.occupied(card, "Withdrawn")
        await pools.becomes("team-a", "Maintenance", "True Rebuilding")

    # A new leader knows the old allocation.
    await pools.is_cut(card, state="Failed", target="1g.10gb:7", message="the driver refused")
    async with pools.works():
        await pools.eventually(lambda: _is(pools, "Exclusive"), "the old allocation to be back")
        assert "the driver refused" in await pools.message("team-a", "Configured")
        await pools.is_cut(card)
        await pools.becomes("team-a", "Maintenance", "False Serving")
        await pools.becomes("team-a", "Configured", "False RolledBack")
        await pools.rests("team-a")

        await pools.confirms("team-a")
        await pools.becomes("team-a", "Maintenance", "True Rebuilding")
        await pools.is_cut(card, "1g.10gb", 7)
        await pools.becomes("team-a", "Configured", "True Configured")
        assert await _is(pools, "MIG")
        await pools.eventually(lambda: _is_used_up(pools), "the confirmation to be used up")
        await pools.eventually(lambda: _recorded(pools, {"RolledBack", "Confirmed"}), "both Events")


async def test_a_rollout_card_by_card(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    await pools.pool("team-a")
    free = await pools.card("gpu-1", 0, "team-a")
    busy = await pools.card("gpu-1", 1, "team-a")
    await pools.occupied(busy, "InUse")

    async with pools.works():
        await pools.becomes("team-a", "Available", "True Serving")
        await pools.set_allocation(
            "team-a", mode="TimeSlice", timeSlice={"maxSlicesPerDevice": 4}, rollout="PerCard"
        )
        await pools.eventually(lambda: _drained(pools, free), "the free card to be drained")
        assert await pools.condition("team-a", "Maintenance") == "False PerCard"
        assert not await _drained(pools, busy)
        own = json.loads((await pools.device(free)).metadata.annotations["gpu.deckhouse.io/allocation"])
        assert own["timeSlice"] == {"maxSlicesPerDevice": 4}

        await pools.occupied(free, "Withdrawn")
        await pools.eventually(lambda: _drained(pools, busy), "the next one to be drained")
        assert not await _drained(pools, free)
        assert await _is(pools, "Exclusive")
        await pools.occupied(free, "Free")
        await pools.occupied(busy, "Withdrawn")
        await pools.becomes("team-a", "Configured", "True Configured")
        assert await _is(pools, "TimeSlice")

        async def tidied() -> bool:
            cards = [await pools.device(card) for card in (free, busy)]
            return not any("gpu.deckhouse.io/allocation" in device.metadata.annotations for device in cards)

        await pools.eventually(tidied, "the cards to follow their pool again")


async def test_pods_wait_for_a_pool_whose_cards_are_unavailable_for_a_moment(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    await pools.node("gpu-2")
    await pools.pool("team-a", mode="MIG", allocation={"migProfile": "1g.10gb"})
    matching = await pools.card("gpu-2", 0)

    async with pools.works():
        await pools.becomes("team-a", "Available", "False NoCapacity")
        await pools.eventually(
            lambda: _admission(pools, 7, f"card {matching} matches"), "a candidate to count"
        )

        # The card joins the pool, and is not partitioned yet.
        await pools.joins(matching, "team-a")
        await pools.is_cut(matching, state="Changing", target="1g.10gb:7")
        await pools.eventually(lambda: _admission(pools, 7, "it is being repartitioned"), "a card to count")

        await pools.api.patch(
            kinds.GPU_DEVICES,
            matching,
            {"metadata": {"annotations": {"gpu.deckhouse.io/assignment": "team-a"}}},
        )
        await pools.is_cut(matching, "1g.10gb", 7)
        await pools.eventually(lambda: _admission(pools, 7, ""), "the pool to serve")

        silent = [condition("AgentSilent", "True", "NoHeartbeat")]
        status = {"status": {"conditions": silent}}
        await pools.api.patch(kinds.GPU_NODE_INVENTORIES, "gpu-2", status, subresource="status")
        await pools.eventually(
            lambda: _admission(pools, 7, "of 1 of 1 card: the agent of its node is silent"),
            "the pool to wait",
        )
        assert "InsufficientCapacity" in await _decision(pools, 9)


async def _admission(pools: PoolEnv, units: int, why: str) -> bool:
    """Whether a pod with so many units is admitted, with a warning that says why it waits, if it does."""
    decision = await _decision(pools, units)
    return decision.startswith("the pod waits for pool team-a: ") and why in decision if why else not decision


async def _decision(pools: PoolEnv, units: int) -> str:
    found = await pools.get("team-a")
    pod = {"spec": {"containers": [{"name": "c", "resources": {"limits": {f"{POOL}team-a": str(units)}}}]}}
    decision = pool_admission.decide(
        pod, PodRequester("ml"), lambda _: admission_pools.pool_facts(found), request_id="1"
    )
    assert decision is not None
    return decision.reason if isinstance(decision, Refusal) else " ".join(decision.warnings)


async def test_drift_closes_the_pool_until_the_repair_is_confirmed(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    await pools.pool("team-a", mode="MIG", allocation={"migProfile": "1g.10gb"})
    card = await pools.card("gpu-1", 0, "team-a")
    await pools.is_cut(card, "1g.10gb", 7)

    async with pools.works():
        await pools.becomes("team-a", "Available", "True Serving")
        await pools.is_cut(card, "2g.20gb", 2, state="Drifted")
        await pools.becomes("team-a", "Misconfigured", "True Drifted")
        assert await pools.condition("team-a", "Maintenance") == "True Drifted"
        await pools.confirms("team-a")  # too early
        await pools.eventually(
            lambda: _recorded(pools, {"NotConfirmed", "Misconfigured"}), "it to be refused"
        )

        await pools.is_cut(card, "1g.10gb", 7)
        await pools.becomes("team-a", "Misconfigured", "True AwaitingConfirmation")
        await pools.confirms("team-a")
        await pools.becomes("team-a", "Misconfigured", "False InOrder")
        assert await pools.condition("team-a", "Maintenance") == "False Serving"


async def test_a_pool_is_deleted_without_leftovers_once_no_pod_holds_a_card(pools: PoolEnv) -> None:
    await pools.node("gpu-1", taints=(FOREIGN,))
    await pools.pool("team-a", scheduling={"taints": [TAINT]})
    card = await pools.card("gpu-1", 0, "team-a")
    await pools.runs("trainer", "gpu-1", card, "team-a")

    async with pools.works():
        await pools.becomes("team-a", "Available", "True Serving")

        async def tainted() -> bool:
            return len((await pools.node_now("gpu-1")).spec.taints) == 2

        await pools.eventually(tainted, "the taint of the pool")
        await pools.api.delete(kinds.GPU_POOLS, "team-a")
        await pools.becomes("team-a", "Maintenance", "True Deleting")
        assert await _assigned(pools, card) == "team-a"

        await pools.ends("trainer")
        await pools.occupied(card, "Withdrawn")

        async def given_back() -> bool:
            return await _assigned(pools, card) == ""

        await pools.eventually(given_back, "the assignment to be taken away")
        await pools.leaves(card)

        async def gone() -> bool:
            try:
                await pools.get("team-a")
            except NotFound:
                return await pools.config("team-a") is None
            return False

        await pools.eventually(gone, "the pool and its ConfigMap to be gone")
        node = await pools.node_now("gpu-1")
        assert "pool.gpu.deckhouse.io/team-a" not in node.metadata.labels
        assert [taint.key for taint in node.spec.taints] == ["maintenance"]
        assert pools.metric("gpupool_assignments", pool="team-a") is None


async def test_two_pools_that_would_take_one_card_are_both_misconfigured(pools: PoolEnv) -> None:
    await pools.node("gpu-1", zone="a")
    await pools.card("gpu-1", 0)
    for name in ("team-a", "team-b"):
        await pools.pool(name, deviceAssignment={"requireAnnotation": False})

    async with pools.works():
        for name in ("team-a", "team-b"):
            await pools.becomes(name, "Misconfigured", "True CardContested")
        assert "pools team-a and team-b" in await pools.message("team-a", "Misconfigured")

        elsewhere = {"spec": {"nodeSelector": {"matchLabels": {"zone": "b"}}}}
        await pools.api.patch(kinds.GPU_POOLS, "team-b", elsewhere)
        for name in ("team-a", "team-b"):
            await pools.becomes(name, "Misconfigured", "False InOrder")


async def test_a_pool_that_no_card_can_serve_is_misconfigured_until_one_can(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    large = {"name": "7g.70gb", "count": 1}
    await pools.card("gpu-1", 0, hardware={"product": "T4", "mig": {"capable": False}})
    await pools.pool("team-a", mode="MIG", allocation={"migProfile": "7g.70gb"})

    async with pools.works():
        await pools.becomes("team-a", "Misconfigured", "True LayoutImpossible")
        why = (
            "the only card that the pool selects cannot have its allocation: "
            "T4 does not support the MIG profiles 7g.70gb; "
            "change spec.allocation or the selectors of the pool"
        )
        assert await pools.message("team-a", "Misconfigured") == why
        await pools.becomes("team-a", "Available", "False Misconfigured")
        assert await pools.message("team-a", "Available") == why
        await pools.eventually(lambda: _notes(pools, "Misconfigured", [why]), "one Event with the sentence")

        await pools.card("gpu-1", 1, hardware={"product": "H", "mig": {"capable": True, "types": [large]}})
        await pools.becomes("team-a", "Misconfigured", "False InOrder")
        await pools.rests("team-a")


async def test_a_pool_says_that_a_namespace_of_its_access_does_not_exist(pools: PoolEnv) -> None:
    """The pool serves the others, and the condition goes when the namespace is created."""
    await pools.node("gpu-1")
    account = f"{pools.namespace}/late-trainer"
    await pools.pool(
        "team-a", access={"namespaces": [pools.namespace, "late-team"], "serviceAccounts": [account]}
    )
    await pools.card("gpu-1", 0, "team-a")

    async with pools.works():
        await pools.becomes("team-a", "AccessUnresolved", "True NamespaceNotFound")
        why = (
            f"spec.access names namespace late-team and service account {account}, which do not exist;"
            " create them, or correct spec.access"
        )
        assert await pools.message("team-a", "AccessUnresolved") == why
        await pools.eventually(lambda: _notes(pools, "AccessUnresolved", [why]), "one Event")
        await pools.becomes("team-a", "Available", "True Serving")
        assert await pools.condition("team-a", "Misconfigured") == "False InOrder"

        await pools.create(kinds.NAMESPACES, {"metadata": {"name": "late-team"}})
        await pools.becomes("team-a", "AccessUnresolved", "True ServiceAccountNotFound")
        await pools.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "late-trainer"}})
        await pools.becomes("team-a", "AccessUnresolved", "False Resolved")
        await pools.eventually(lambda: _recorded(pools, {"AccessResolved"}), "the Event of its end")


async def test_a_change_that_no_card_can_serve_is_not_started(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    await pools.pool("team-a")
    card = await pools.card("gpu-1", 0, "team-a")
    await pools.is_cut(card)

    async with pools.works():
        await pools.becomes("team-a", "Available", "True Serving")
        await pools.set_allocation("team-a", mode="MIG", migProfile="7g.70gb")
        await pools.becomes("team-a", "Configured", "False ChangeImpossible")
        message = await pools.message("team-a", "Configured")
        assert "SIM does not support the MIG profiles 7g.70gb" in message
        assert message.endswith("until then the pool stays at Exclusive")
        await pools.eventually(lambda: _notes(pools, "ChangeImpossible", [message]), "one Event")
        await pools.rests("team-a")
        assert await _is(pools, "Exclusive")
        assert await pools.condition("team-a", "Available") == "True Serving"
        assert await pools.condition("team-a", "Maintenance") == "False Serving"

        await pools.set_allocation("team-a", mode="Exclusive")
        await pools.becomes("team-a", "Configured", "True Configured")


async def test_after_the_deadline_the_pool_names_the_holders(pools: PoolEnv) -> None:
    await pools.node("gpu-1")
    await pools.pool("team-a")
    card = await pools.card("gpu-1", 0, "team-a")
    await pools.runs("trainer", "gpu-1", card, "team-a")

    async with pools.works(deadline=timedelta(seconds=1)):
        await pools.becomes("team-a", "Available", "True Serving")
        await pools.set_allocation("team-a", mode="MPS")
        await pools.becomes("team-a", "Maintenance", "True GPUModeChangeStuck")
        assert "trainer holds card" in await pools.message("team-a", "Maintenance")
        assert pools.metric("croupier_pool_mode_change_stuck", pool="team-a") == 1
        await pools.eventually(lambda: _recorded(pools, {"GPUModeChangeStuck"}), "the Event")


async def test_a_missing_namespace_is_reported(pools: PoolEnv) -> None:
    await pools.pool("team-a")

    async with pools.works(namespace="nowhere"):
        await pools.becomes("team-a", "Configured", "False NamespaceMissing")


async def test_many_joining_cards_cause_few_writes(pools: PoolEnv) -> None:
    calm, began = 1.0, asyncio.get_running_loop().time()
    await pools.node("gpu-1")
    await pools.pool("team-a")
    async with pools.works(debounce=calm):
        cards = [await pools.card("gpu-1", index, "team-a") for index in range(30)]

        async def all_there() -> bool:
            return len((await pools.get("team-a")).status.devices) == len(cards)

        await pools.eventually(all_there, "all cards in the status")
        reconciles = (asyncio.get_running_loop().time() - began) / calm + 2
        by_users = 2  # the pool itself, and its finalizer
        assert pools.writes.count("gpupools.gpu.deckhouse.io") <= reconciles + by_users


async def _allocation(pools: PoolEnv, mode: str) -> Any:
    found = (await pools.get("team-a")).status.allocation
    assert found is not None
    assert found.mode == mode
    return found


async def _served_enforcement(pools: PoolEnv) -> Any:
    """The enforcement that the agents read."""
    served = await pools.config("team-a")
    assert served is not None
    return json.loads(served.data["allocation"])["enforcement"]


async def _is(pools: PoolEnv, mode: str) -> bool:
    found = (await pools.get("team-a")).status.allocation
    return found is not None and found.mode == mode


async def _recorded(pools: PoolEnv, reasons: set[str], name: str = "team-a") -> bool:
    return reasons <= await pools.events(name)


async def _notes(pools: PoolEnv, reason: str, wanted: list[str], name: str = "team-a") -> bool:
    """Events outlive their pools, so those of an earlier pool with this name do not count."""
    listed = await pools.api.list(kinds.EVENTS, Selection("default"))
    uid = (await pools.get(name)).metadata.uid
    return [
        event.note for event in listed.items if event.regarding.uid == uid and event.reason == reason
    ] == wanted


async def _is_used_up(pools: PoolEnv) -> bool:
    return not (await pools.get("team-a")).metadata.annotations


async def _drained(pools: PoolEnv, card: str) -> bool:
    return "gpu.deckhouse.io/drain" in (await pools.device(card)).metadata.annotations


async def _assigned(pools: PoolEnv, card: str) -> str:
    return (await pools.device(card)).metadata.annotations.get("gpu.deckhouse.io/assignment", "")
