"""The handshake of all controllers for a change of a pool: no held card is changed.

The controllers of ledger, occupancy, cards and pools are real, on a real API server. The agent of the node is
simulated: it repartitions a card once the card is withdrawn.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from croupier.api import kinds, meta
from croupier.api.gpu import GPUDevice, agent_report, convert_pool, pool_config
from croupier.api.gpu.device import DRAIN
from croupier.api.gpu.pool import PoolAllocation
from croupier.capacity.read_only_ledgers import ReadOnlyLedgers
from croupier.controllers.cards.cards import CardController
from croupier.controllers.cards.cards import CardInformers as CardSources
from croupier.controllers.ledger import card_sync, occupancy
from croupier.controllers.ledger.card_sync import CardSyncController
from croupier.controllers.ledger.occupancy import OccupancyController
from croupier.controllers.pools import pool
from croupier.controllers.pools.pool import PoolController
from croupier.controllers.shared.card_events import CardEventRecorders
from croupier.core.ledger import ledger
from croupier.core.model.card import CardGrant
from croupier.core.pools.assignment import ASSIGNMENT
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.api_client import Selection
from croupier.kube.client.errors import ApiError, NotFound
from croupier.kube.controller.events import EventRecorder
from tests.controllers.card_env import condition
from tests.controllers.cards.test_cards_handshake import FIT
from tests.controllers.ledger_env import NODE, LedgerEnv, running, watched
from tests.controllers.pool_env import TYPES, FixedBookings, cut, forget
from tests.polling import until, until_async

POOL = "team-a"
TRAINER = "team/trainer/1234"
MIG = {"mode": "MIG", "migProfile": "1g.10gb"}
TIMEOUT = 60.0


async def node_with_two_cards(world: LedgerEnv) -> list[str]:
    """Create a ready node with two cards."""
    await world.node(gpu=2)
    await world.create(kinds.GPU_NODE_INVENTORIES, {"metadata": {"name": NODE}})
    status = {"bootstrap": {"phase": "Ready"}, "conditions": [condition("InventoryIncomplete", False), *FIT]}
    await world.api.patch(kinds.GPU_NODE_INVENTORIES, NODE, {"status": status}, subresource="status")
    hardware = {"product": "SIM", "mig": {"capable": True, "types": TYPES}}
    return [await world.device(index, hardware=hardware, cut=cut()) for index in range(2)]


async def two_cards(world: LedgerEnv, mode: str = "Exclusive") -> list[str]:
    """Create a ready node with two cards that are assigned to a pool."""
    spec = {"allocation": {"mode": mode}}
    await world.create(kinds.GPU_POOLS, {"metadata": {"name": POOL}, "spec": spec})
    cards = await node_with_two_cards(world)
    for card in cards:
        await world.api.patch(kinds.GPU_DEVICES, card, {"metadata": {"annotations": {ASSIGNMENT: POOL}}})
    return cards


@contextlib.asynccontextmanager
async def at_work(world: LedgerEnv) -> AsyncIterator[list[GPUDevice]]:
    """Run all controllers; yields every observed state of a card."""
    agents = Selection(world.namespace, labels=agent_report.LEASE_SELECTOR)
    ours = Selection(world.namespace, labels=pool_config.POOL_LABEL)
    reporters, recorder = CardEventRecorders(world.api), EventRecorder(world.api, pool.REPORTER)
    shown: list[GPUDevice] = []
    async with (
        world.sees() as sight,
        watched(world.api, kinds.LEASES, agents) as leases,
        watched(world.api, kinds.CONFIG_MAPS, ours) as configs,
        watched(world.api, kinds.NODE_RESERVATIONS, Selection()) as records,
        watched(world.api, kinds.NAMESPACES, Selection()) as namespaces,
        watched(world.api, kinds.SERVICE_ACCOUNTS, Selection()) as accounts,
        contextlib.AsyncExitStack() as stack,
    ):
        seen, ledgers = sight.sources, ReadOnlyLedgers(sight, records)
        card_sources = CardSources(seen.devices, seen.inventories, seen.pools, seen.nodes, leases)
        pool_sources = pool.PoolInformers(
            pools=seen.pools,
            devices=seen.devices,
            nodes=seen.nodes,
            inventories=seen.inventories,
            config_maps=configs,
            namespaces=namespaces,
            accounts=accounts,
            ledgers=ledgers,
            bookings=FixedBookings(),
        )
        controllers: list[Any] = [
            CardSyncController(sight, world.manager, card_sync.CardSyncOptions()),
            OccupancyController(
                sight, world.api, manager=world.manager, settings=occupancy.OccupancyOptions(0.1, 0.05)
            ),
            CardController(card_sources, world.api, recorders=reporters, ledgers=ledgers),
            PoolController(
                pool_sources,
                world.api,
                recorder=recorder,
                settings=pool.PoolControllerOptions(namespace=world.namespace, debounce=0.05),
            ),
            reporters,
            recorder,
        ]
        seen.devices.store.subscribe(lambda change: _note(shown, change))
        for controller in controllers:
            await stack.enter_async_context(running(controller.run(asyncio.Event())))
        await stack.enter_async_context(running(agent(world)))
        yield shown
    await forget(world.api, world.namespace, POOL)


def _note(shown: list[GPUDevice], change: ObjectChange[GPUDevice]) -> None:
    if change.new is not None:
        shown.append(change.new)


async def agent(world: LedgerEnv) -> None:
    """Repartition every card by its pool or its own annotation, after it is reported and withdrawn."""
    while True:
        with contextlib.suppress(NotFound, ApiError):
            config = await world.api.get(kinds.CONFIG_MAPS, pool_config.name(POOL), namespace=world.namespace)
            for name in json.loads(config.data["inventoryIDs"]):
                device = await world.api.get(kinds.GPU_DEVICES, name)
                allocation = convert_pool.card_allocation(device) or convert_pool.decode_allocation(
                    config.data["allocation"]
                )
                assert allocation is not None
                if (wanted := next_cut(device, mig=allocation.mode == "MIG")) is not None:
                    status = {"status": {"cut": wanted}}
                    await world.api.patch(kinds.GPU_DEVICES, name, status, subresource="status")
        await asyncio.sleep(0.05)


def next_cut(device: GPUDevice, *, mig: bool) -> dict[str, Any] | None:
    target = cut("1g.10gb", 7) if mig else cut()
    now = device.status.cut
    if now is None or (now.target == target["target"] and now.state == "Applied"):
        return None
    if _occupancy(device) == "Withdrawn" and now.target == target["target"]:
        return target
    waiting = cut() if mig else cut("1g.10gb", 7)
    asked = {**waiting, "target": target["target"], "state": "Waiting"}
    return asked if (now.target, now.state) != (asked["target"], asked["state"]) else None


async def set_allocation(world: LedgerEnv, **allocation: Any) -> None:
    await world.api.patch(kinds.GPU_POOLS, POOL, {"spec": {"allocation": allocation}})


async def is_(world: LedgerEnv, kind: str, wanted: str) -> None:
    async def reached() -> bool:
        found = meta.condition((await world.api.get(kinds.GPU_POOLS, POOL)).status.conditions, kind)
        return found is not None and f"{found.status} {found.reason}" == wanted

    await until_async(reached, f"the pool to be {kind} {wanted}", within=TIMEOUT)


async def serves(world: LedgerEnv, card: str, **about: Any) -> None:
    def matches() -> bool:
        held = world.manager.ledger(NODE)
        found = held.card(card) if held is not None else None
        return found is not None and all(getattr(found, name) == value for name, value in about.items())

    await until(matches, f"the ledger's {card} to be {about}", within=TIMEOUT)


@pytest.mark.parametrize("world", ["CRD"], indirect=True)
async def test_the_whole_pool_changes_after_its_last_pod(world: LedgerEnv) -> None:
    first, second = await two_cards(world)
    async with at_work(world) as shown:
        for card in (first, second):
            await serves(world, card, mode="Exclusive", pool=POOL, healthy=True)
        await world.plant(TRAINER, first, percent=100)

        await set_allocation(world, **MIG)
        await is_(world, "Maintenance", "True Draining")
        for card in (first, second):
            await serves(world, card, mode="Exclusive", healthy=False)
        await until_async(lambda: _occupancy_is(world, second, "Withdrawn"), "the free card to wait", TIMEOUT)
        assert (await world.api.get(kinds.GPU_POOLS, POOL)).status.allocation == PoolAllocation(
            mode="Exclusive"
        )

        await world.manager.amend(NODE, lambda held: ledger.release(held, TRAINER))
        await is_(world, "Maintenance", "False Serving")
        for card in (first, second):
            await serves(world, card, mode="MIG", healthy=True, pool=POOL)
    assert changed_only_when_withdrawn(shown, 2)


@pytest.mark.parametrize("world", ["CRD"], indirect=True)
async def test_a_change_that_needs_no_partitioning_drains_no_card_when_it_is_finished(
    world: LedgerEnv,
) -> None:
    """The pool opens with all its cards: none is withdrawn again by a drain of the finished change."""
    first, second = await two_cards(world, "MPS")
    async with at_work(world) as shown:
        for card in (first, second):
            await serves(world, card, mode="Percent", pool=POOL, healthy=True)
        await set_allocation(world, mode="MPS", enforcement="None")

        async def adopted() -> bool:
            allocation = (await world.api.get(kinds.GPU_POOLS, POOL)).status.allocation
            return allocation is not None and allocation.enforcement == "None"

        await until_async(adopted, "the pool to have enforcement None", within=TIMEOUT)
        await is_(world, "Maintenance", "False Serving")
        for card in (first, second):
            await serves(world, card, mode="Percent", pool=POOL, healthy=True)
        await is_(world, "Available", "True Serving")
    assert [device.metadata.name for device in shown if DRAIN in device.metadata.annotations] == []


@pytest.mark.parametrize("world", ["InMemory"], indirect=True)
async def test_a_rollout_changes_one_card_while_the_other_is_held(world: LedgerEnv) -> None:
    first, second = await two_cards(world)
    async with at_work(world) as shown:
        for card in (first, second):
            await serves(world, card, mode="Exclusive", pool=POOL, healthy=True)
        await world.plant(TRAINER, first, percent=100)
        await until_async(lambda: _occupancy_is(world, first, "InUse"), "the card to be in use", TIMEOUT)

        await set_allocation(world, **MIG, rollout="PerCard")
        await serves(world, second, mode="MIG", healthy=True)
        await serves(world, first, mode="Exclusive", healthy=False, used=100)
        await is_(world, "Maintenance", "False PerCard")

        await world.manager.amend(NODE, lambda held: ledger.release(held, TRAINER))
        await serves(world, first, mode="MIG", healthy=True)
        await is_(world, "Configured", "True Configured")
    assert changed_only_when_withdrawn(shown, 2)


@pytest.mark.parametrize("world", ["CRD"], indirect=True)
async def test_units_are_not_mixed_while_a_held_card_keeps_its_mode(world: LedgerEnv) -> None:
    first, second = await two_cards(world, "MPS")
    async with at_work(world):
        for card in (first, second):
            await serves(world, card, mode="Percent", pool=POOL, healthy=True)
        await world.plant(TRAINER, first, percent=30)
        await counts(world, 200, 30, "Percent")

        await set_allocation(world, mode="TimeSlice", timeSlice={"maxSlicesPerDevice": 8}, rollout="PerCard")
        await serves(world, second, mode="TimeSlice", healthy=True)
        await serves(world, first, mode="Percent", healthy=False, used=30)
        await counts(world, 30, 30, "Percent")
        others = "1 card counts in another unit while the pool changes, with 8 free time slices"
        message = f"0 of 30 units are available; {others}"
        await until_async(lambda: _available_is(world, message), "the other card to be named", TIMEOUT)

        await world.manager.amend(NODE, lambda held: ledger.release(held, TRAINER))
        await counts(world, 16, 0, "TimeSlice")


async def _available_is(world: LedgerEnv, message: str) -> bool:
    found = await world.api.get(kinds.GPU_POOLS, POOL)
    available = meta.condition(found.status.conditions, "Available")
    return available is not None and available.message == message


async def counts(world: LedgerEnv, total: int, used: int, unit: str) -> None:
    async def counted() -> bool:
        found = (await world.api.get(kinds.GPU_POOLS, POOL)).status.capacity
        return found is not None and (found.total, found.used, found.unit) == (total, used, unit)

    await until_async(counted, f"the pool to have {used} of {total} {unit} in use", within=TIMEOUT)


@pytest.mark.parametrize("world", ["CRD", "InMemory"], indirect=True)
async def test_a_held_card_returns_to_its_pool_with_its_holder(world: LedgerEnv) -> None:
    """The Node object is deleted and created again under a running pod, with everything that it owns."""
    first, second = await two_cards(world)
    async with at_work(world):
        for card in (first, second):
            await serves(world, card, mode="Exclusive", pool=POOL, healthy=True)
        holder = await pool_pod(world, first)
        await world.plant(holder, first, percent=100)
        await counts(world, 2, 1, "Card")

        await world.api.delete(kinds.NODES, NODE)
        await world.api.delete(kinds.GPU_NODE_INVENTORIES, NODE)
        for card in (first, second):
            await world.api.delete(kinds.GPU_DEVICES, card)
        await counts(world, 0, 0, "Card")
        assert await node_with_two_cards(world) == [first, second]

        await counts(world, 1, 1, "Card")
        await serves(world, first, mode="Exclusive", pool=POOL, healthy=True, used=100)
        device = await world.api.get(kinds.GPU_DEVICES, first)
        assert device.metadata.annotations[ASSIGNMENT] == POOL
        await until_async(lambda: _phase_is(world, first, "InUse"), "the card to be in use", TIMEOUT)
        assert (await world.api.get(kinds.GPU_DEVICES, second)).pool_name == ""

        await world.delete("trainer")
        await world.manager.amend(NODE, lambda held: ledger.release(held, holder))
        await counts(world, 1, 0, "Card")


async def pool_pod(world: LedgerEnv, card: str) -> str:
    """A bound pod with a card of the pool; returns its holder name."""
    main = {"name": "main", "image": "none", "resources": {"limits": {f"gpu.deckhouse.io/{POOL}": "1"}}}
    spec = {"schedulerName": "none", "containers": [main], "terminationGracePeriodSeconds": 0}
    pod = await world.create(kinds.PODS, {"metadata": {"name": "trainer"}, "spec": spec})
    await world.bind(pod, (CardGrant(card, 100),))
    return world.holder(pod)


async def _phase_is(world: LedgerEnv, card: str, wanted: str) -> bool:
    return (await world.api.get(kinds.GPU_DEVICES, card)).status.phase == wanted


async def _occupancy_is(world: LedgerEnv, card: str, wanted: str) -> bool:
    return _occupancy(await world.api.get(kinds.GPU_DEVICES, card)) == wanted


def changed_only_when_withdrawn(shown: list[GPUDevice], times: int) -> bool:
    """Before every change of its MIG devices the card was reported as Withdrawn."""
    cards = {device.metadata.name for device in shown}
    histories = [[device for device in shown if device.metadata.name == name] for name in cards]
    changes = [
        old for history in histories for old, new in pairwise(history) if _devices(old) != _devices(new)
    ]
    return len(changes) == times and all(_occupancy(old) == "Withdrawn" for old in changes)


def _devices(device: GPUDevice) -> int:
    return len(device.status.cut.slots) if device.status.cut is not None else 0


def _occupancy(device: GPUDevice) -> str:
    return next((cond.reason for cond in device.status.conditions if cond.type == "Occupied"), "")
