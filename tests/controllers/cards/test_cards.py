"""The card controller on a real API server: what it writes, with which owner, and how often."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from croupier.api import kinds, meta
from croupier.api.gpu.agent_report import ReportedHealth
from croupier.controllers.cards.metrics import DeviceMetrics
from croupier.controllers.shared.card_events import CardEventRecorders
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.core.pools.assignment import ASSIGNMENT, Approval
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.errors import Conflict
from tests.controllers import card_env
from tests.controllers.card_env import CardEnv
from tests.controllers.ledger_env import running
from tests.core import card_scenarios
from tests.core.card_scenarios import CardScenario, CardSituation, ScenarioStep
from tests.polling import until_async

SCENARIOS = {
    name: story
    for name, story in card_scenarios.scenarios().items()
    if name
    in {
        "first-life: a card is discovered, validated, assigned, used and released",
        "faults: faulted under a pod",
        "infrastructure: a free card of a pool, and one that waits",
        "set-aside: retired from a pool",
        "moving: moved to another pool",
        "approval: a pool that needs no approval",
        "approval: an assignment that names no pool",
    }
}
FIT = CardSituation(node="fit")
IN_A = replace(FIT, annotation="team-a", occupancy="Withdrawn")
EXCLUSIVE = {"allocation": {"mode": "Exclusive"}}
WRITES = ("create", "update", "patch", "apply", "delete")


@pytest.fixture
def writes() -> Counter[str]:
    return Counter()


@pytest_asyncio.fixture
async def stage(
    cluster: Any, crds: Any, shared_namespace: str, writes: Counter[str]
) -> AsyncIterator[CardEnv]:
    def observe(verb: str, resource: str, code: int, seconds: float) -> None:
        if verb in WRITES:
            writes[f"{verb} {resource}"] += 1

    async with (
        api_client.connect(config.load(cluster.kubeconfig), field_manager="test", observe=observe) as api,
        card_env.card_env(api, shared_namespace) as made,
    ):
        yield made


def test_the_scenarios_exist():
    assert len(SCENARIOS) == 7


@pytest.mark.parametrize("story", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_scenario(stage: CardEnv, story: CardScenario):
    reporters = CardEventRecorders(stage.api)
    controller = stage.controller(
        reporters, Approval("Automatic" if story.approval == "Automatic" else "Manual")
    )
    async with running(reporters.run(asyncio.Event())):
        for act in story.acts:
            await stage.pools(dict(act.pools))
            await stage.becomes(act.situation, annotated="annotation" in act.said)
            await stage.rests(controller)
            await check(stage, act)


async def check(stage: CardEnv, act: ScenarioStep) -> None:
    device, wanted = await stage.device(), act.ending
    pool = device.status.pool_ref.name if device.status.pool_ref else ""
    assert (device.status.phase, pool) == (wanted.phase, wanted.pool), act.name
    if pool:
        assert device.status.pool_ref is not None
        assert device.status.pool_ref.resource == f"gpu.deckhouse.io/{pool}"
    if wanted.annotation is not None:
        assert device.metadata.annotations.get(ASSIGNMENT, "") == wanted.annotation, act.name
    if wanted.pending:
        pending = (await stage.inventory()).status.pools.pending
        assert {one.reason for one in pending} == set(wanted.pending), act.name
        assert {one.inventory_ids for one in pending} == {(stage.card,)}, act.name
    for said in filter(None, (wanted.mismatch, wanted.reason and f"{wanted.by} {wanted.reason}".strip())):
        await told(stage, said)


async def told(stage: CardEnv, said: str) -> None:
    async def found() -> bool:
        return any(said in line for line in await stage.events())

    await until_async(found, f"an Event that says {said!r}", within=60)


async def test_a_reconcile_without_changes_writes_nothing(stage: CardEnv, writes: Counter[str]):
    controller = stage.controller(CardEventRecorders(stage.api))
    await stage.pools({"team-a": EXCLUSIVE})
    await stage.becomes(IN_A)
    await stage.rests(controller)
    await stage.caught_up()
    writes.clear()

    await controller.reconcile(stage.node)

    assert writes == {}


async def test_a_whole_path_is_one_write(stage: CardEnv, writes: Counter[str]):
    controller = stage.controller(CardEventRecorders(stage.api))
    await stage.pools({"team-a": EXCLUSIVE})
    await stage.becomes(IN_A)
    await stage.caught_up()
    writes.clear()

    await controller.reconcile(stage.node)

    assert (await stage.device()).status.phase == "Assigned"
    assert writes == {"apply gpudevices.gpu.deckhouse.io": 1, "apply gpunodeinventories.gpu.deckhouse.io": 1}


async def test_status_and_conditions_name_the_generation_that_was_read(stage: CardEnv):
    controller = stage.controller(CardEventRecorders(stage.api))
    await stage.becomes(FIT)
    await stage.rests(controller)
    inventory = await stage.inventory()
    unassigned = meta.condition(inventory.status.conditions, "UnassignedDevice")
    assert unassigned is not None
    assert unassigned.observed_generation == inventory.metadata.generation == 1
    assert await generations(stage) == (1, 1, {1})

    await stage.api.patch(kinds.GPU_DEVICES, stage.card, {"spec": {}})
    assert await generations(stage) == (2, 1, {1}), "nothing has read the new spec yet"

    await stage.rests(controller)
    assert await generations(stage) == (2, 2, {2})


async def generations(stage: CardEnv) -> tuple[int, int | None, set[int | None]]:
    """That of the card, of its status, and of the conditions that the controller owns."""
    device = await stage.device()
    own = {one.observed_generation for one in device.status.conditions if one.type != "Occupied"}
    return device.metadata.generation, device.status.observed_generation, own


async def test_fields_of_other_controllers_stay(stage: CardEnv):
    await stage.becomes(replace(FIT, occupancy="InUse", incomplete="labels contradict each other"))
    await stage.rests(stage.controller(CardEventRecorders(stage.api)))

    device, inventory = await stage.device(), await stage.inventory()
    assert {one.type for one in device.status.conditions} >= {"Occupied", "ReadyForPooling", "Faulted"}
    assert device.status.hardware is not None
    assert {one.type for one in inventory.status.conditions} >= {"InventoryIncomplete", "UnassignedDevice"}
    assert inventory.status.bootstrap.phase == "Ready"


async def test_an_ignored_card_loses_its_conditions(stage: CardEnv):
    controller = stage.controller(CardEventRecorders(stage.api))
    await stage.becomes(FIT)
    await stage.rests(controller)

    await stage.becomes(replace(FIT, ignored=True))
    await stage.rests(controller)

    own = {one.type for one in (await stage.device()).status.conditions} - {"Occupied"}
    assert own == {"Ignored"}


async def test_a_newer_annotation_of_a_user_is_not_overwritten(stage: CardEnv):
    """The annotation is written only to the version of the card that was read."""
    controller = stage.controller(CardEventRecorders(stage.api), Approval("Automatic"))
    await stage.pools({"team-a": EXCLUSIVE})
    await stage.becomes(FIT)
    await stage.caught_up()
    old = await stage.device()
    seen = stage.followed["devices"].store
    await stage.api.patch(
        kinds.GPU_DEVICES, stage.card, {"metadata": {"annotations": {ASSIGNMENT: "team-b"}}}
    )
    await stage.caught_up()
    seen.put(old)  # the cache is stale

    with pytest.raises(Conflict):
        await controller.reconcile(stage.node)

    assert (await stage.device()).metadata.annotations[ASSIGNMENT] == "team-b"


async def test_the_node_lists_its_pools(stage: CardEnv):
    controller = stage.controller(CardEventRecorders(stage.api))
    held = LedgerCard(stage.card, 0, "Exclusive", pool="team-a", holders={"ns/pod/uid": 100})
    stage.fake_ledgers.put(Ledger(stage.node, (held,)))
    await stage.pools({"team-a": EXCLUSIVE})
    await stage.becomes(IN_A)
    await stage.rests(controller)

    (line,) = (await stage.inventory()).status.pools.assigned
    assert (line.name, line.resource, line.slots_reserved) == ("team-a", "gpu.deckhouse.io/team-a", 1)
    assert line.since is not None
    assert line.inventory_ids == (stage.card,)


async def test_every_relevant_change_triggers_a_reconcile(stage: CardEnv):
    """The running controller reacts to a pool, an agent report and an annotation."""
    reporters = CardEventRecorders(stage.api)
    controller = stage.controller(reporters)

    async def rests_in(phase: str) -> None:
        async def reached() -> bool:
            return (await stage.device()).status.phase == phase

        await until_async(reached, f"the card to be {phase}", within=60)

    async with running(reporters.run(asyncio.Event())), running(controller.run(asyncio.Event())):
        await stage.becomes(FIT)
        await rests_in("Ready")
        await stage.pools({"team-a": EXCLUSIVE})
        await rests_in("PendingAssignment")
        await stage.people(replace(FIT, annotation="team-a"))
        await stage.occupied("Withdrawn")
        await rests_in("Assigned")
        await stage.reports(ReportedHealth(healthy=False, reason="CriticalXID", message="XID 79", clean=0))
        await rests_in("Faulted")
        await stage.reports(ReportedHealth(clean=3))
        await rests_in("Assigned")
        await stage.pools({})
        await stage.occupied("Withdrawn")
        await rests_in("Ready")
    await told(stage, "gpupool-controller GPUAnnotationMismatch")


class LaterClock(SystemClock):
    """A clock 90 seconds after the timestamps of this environment."""

    def now(self) -> datetime:
        return datetime.fromisoformat(card_env.LONG_AGO) + timedelta(seconds=90)


async def test_metrics_follow_the_store(stage: CardEnv):
    registry = CollectorRegistry()
    store: Store[Any] = stage.followed["devices"].store
    DeviceMetrics(registry, store, LaterClock())
    await stage.becomes(replace(FIT, occupancy="InUse"))
    await stage.rests(stage.controller(CardEventRecorders(stage.api)))
    await stage.caught_up()

    assert registry.get_sample_value("gpu_device_unassigned_total") == 1
    assert registry.get_sample_value("gpu_device_reserved_total") == 0
    assert registry.get_sample_value("gpu_device_reservation_age_seconds") == 90

    await stage.api.delete(kinds.GPU_DEVICES, stage.card)
    await stage.caught_up()
    assert registry.get_sample_value("gpu_device_unassigned_total") == 0
    assert registry.get_sample_value("gpu_device_reservation_age_seconds") == 0
