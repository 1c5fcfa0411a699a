"""A pool changes how it is shared, with everybody at work who has a say: nothing is changed under a holder.

The ledger, its word about cards, the life of cards and the pools are the real ones, on a real API server;
the agent of the node is played, and does what real ones do: it cuts a card once that is withdrawn.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from croupier.api import kinds
from croupier.api.gpu import GPUDevice, agent_report, pooling
from croupier.api.gpu.device import ASSIGNMENT
from croupier.api.gpu.pool import Allocation
from croupier.controllers.cards.cards import CardController
from croupier.controllers.cards.cards import Sources as CardSources
from croupier.controllers.cards.reporters import Reporters
from croupier.controllers.ledger import capacity, occupancy
from croupier.controllers.ledger.capacity import CapacityController
from croupier.controllers.ledger.ledgers import Ledgers
from croupier.controllers.ledger.occupancy import Occupancy
from croupier.controllers.pools import pool
from croupier.controllers.pools import writing as pool_writing
from croupier.controllers.pools.pool import PoolController
from croupier.core.ledgers import ledger
from croupier.kube.client import Selection
from croupier.kube.errors import ApiError, NotFound
from croupier.kube.events import Recorder
from croupier.kube.store import Change
from tests.controllers.card_stage import condition
from tests.controllers.pools import TYPES, Bookings, cut, forget
from tests.controllers.test_cards_handshake import FIT
from tests.controllers.world import NODE, World, running, watched
from tests.kube.waiting import until, until_async

POOL = "team-a"
TRAINER = "team/trainer/1234"
MIG = {"mode": "MIG", "migProfile": "1g.10gb"}
PATIENCE = 60.0


async def two_cards(world: World) -> list[str]:
    """A node that is ready, with two cards given to a pool of whole cards."""
    await world.node(gpu=2)
    await world.create(kinds.GPU_NODE_INVENTORIES, {"metadata": {"name": NODE}})
    judged = {"bootstrap": {"phase": "Ready"}, "conditions": [condition("InventoryIncomplete", False), *FIT]}
    await world.api.patch(kinds.GPU_NODE_INVENTORIES, NODE, {"status": judged}, subresource="status")
    spec = {"allocation": {"mode": "Exclusive"}}
    await world.create(kinds.GPU_POOLS, {"metadata": {"name": POOL}, "spec": spec})
    hardware = {"product": "SIM", "mig": {"capable": True, "types": TYPES}}
    cards = [await world.device(index, hardware=hardware, cut=cut()) for index in range(2)]
    for card in cards:
        await world.api.patch(kinds.GPU_DEVICES, card, {"metadata": {"annotations": {ASSIGNMENT: POOL}}})
    return cards


@contextlib.asynccontextmanager
async def at_work(world: World) -> AsyncIterator[list[GPUDevice]]:
    """All of them; with every state of a card that was ever shown."""
    agents = Selection(world.namespace, labels=agent_report.LEASES)
    ours = Selection(world.namespace, labels=pool_writing.LABEL)
    reporters, recorder = Reporters(world.api), Recorder(world.api, pool.REPORTER)
    shown: list[GPUDevice] = []
    async with (
        world.sees() as sight,
        watched(world.api, kinds.LEASES, agents) as leases,
        watched(world.api, kinds.CONFIG_MAPS, ours) as configs,
        watched(world.api, kinds.NODE_RESERVATIONS, Selection()) as records,
        contextlib.AsyncExitStack() as stack,
    ):
        seen, ledgers = sight.sources, Ledgers(sight, records)
        card_sources = CardSources(seen.devices, seen.inventories, seen.pools, seen.nodes, leases)
        pool_sources = pool.Sources(
            seen.pools, seen.devices, seen.nodes, seen.inventories, configs, ledgers, Bookings()
        )
        keepers: list[Any] = [
            CapacityController(sight, world.book, capacity.Settings()),
            Occupancy(
                sight, world.api, book=world.book, settings=occupancy.Settings(calm=0.1, patience=0.05)
            ),
            CardController(card_sources, world.api, reporters=reporters, ledgers=ledgers),
            PoolController(
                pool_sources,
                world.api,
                recorder=recorder,
                settings=pool.Settings(namespace=world.namespace, calm=0.05),
            ),
            reporters,
            recorder,
        ]
        seen.devices.store.subscribe(lambda change: _note(shown, change))
        for keeper in keepers:
            await stack.enter_async_context(running(keeper.run(asyncio.Event())))
        await stack.enter_async_context(running(agent(world)))
        yield shown
    await forget(world.api, world.namespace, POOL)


def _note(shown: list[GPUDevice], change: Change[GPUDevice]) -> None:
    if change.new is not None:
        shown.append(change.new)


async def agent(world: World) -> None:
    """Cuts every card as its pool, or its own word, says: once it said so and the card is withdrawn."""
    while True:
        with contextlib.suppress(NotFound, ApiError):
            config = await world.api.get(
                kinds.CONFIG_MAPS, pool_writing.config_name(POOL), namespace=world.namespace
            )
            for name in json.loads(config.data["inventoryIDs"]):
                device = await world.api.get(kinds.GPU_DEVICES, name)
                told = pooling.own(device) or pooling.written(config.data["allocation"])
                assert told is not None
                if (wanted := next_cut(device, mig=told.mode == "MIG")) is not None:
                    status = {"status": {"cut": wanted}}
                    await world.api.patch(kinds.GPU_DEVICES, name, status, subresource="status")
        await asyncio.sleep(0.05)


def next_cut(device: GPUDevice, *, mig: bool) -> dict[str, Any] | None:
    target = cut("1g.10gb", 7) if mig else cut()
    now = device.status.cut
    if now is None or (now.target == target["target"] and now.state == "Applied"):
        return None
    if _word(device) == "Withdrawn" and now.target == target["target"]:
        return target
    waiting = cut() if mig else cut("1g.10gb", 7)
    asked = {**waiting, "target": target["target"], "state": "Waiting"}
    return asked if (now.target, now.state) != (asked["target"], asked["state"]) else None


async def wishes(world: World, **allocation: Any) -> None:
    await world.api.patch(kinds.GPU_POOLS, POOL, {"spec": {"allocation": allocation}})


async def is_(world: World, kind: str, wanted: str) -> None:
    async def look() -> bool:
        found = pooling.condition((await world.api.get(kinds.GPU_POOLS, POOL)).status.conditions, kind)
        return found is not None and f"{found.status} {found.reason}" == wanted

    await until_async(look, f"the pool to be {kind} {wanted}", within=PATIENCE)


async def serves(world: World, card: str, **about: Any) -> None:
    def look() -> bool:
        held = world.book.ledger(NODE)
        found = held.card(card) if held is not None else None
        return found is not None and all(getattr(found, name) == value for name, value in about.items())

    await until(look, f"the ledger's {card} to be {about}", within=PATIENCE)


@pytest.mark.parametrize("world", ["CRD"], indirect=True)
async def test_the_whole_pool_changes_once_its_last_pod_is_gone(world: World) -> None:
    first, second = await two_cards(world)
    async with at_work(world) as shown:
        for card in (first, second):
            await serves(world, card, mode="Exclusive", pool=POOL, healthy=True)
        await world.plant(TRAINER, first, percent=100)

        await wishes(world, **MIG)
        await is_(world, "Maintenance", "True Draining")
        for card in (first, second):
            await serves(world, card, mode="Exclusive", healthy=False)
        await until_async(lambda: _word_is(world, second, "Withdrawn"), "the free card to wait", PATIENCE)
        assert (await world.api.get(kinds.GPU_POOLS, POOL)).status.allocation == Allocation(mode="Exclusive")

        await world.book.amend(NODE, lambda held: ledger.release(held, TRAINER))
        await is_(world, "Maintenance", "False Serving")
        for card in (first, second):
            await serves(world, card, mode="MIG", healthy=True, pool=POOL)
    assert cut_only_when_withdrawn(shown, 2)


@pytest.mark.parametrize("world", ["InMemory"], indirect=True)
async def test_card_by_card_one_serves_anew_while_the_other_is_still_held(world: World) -> None:
    first, second = await two_cards(world)
    async with at_work(world) as shown:
        for card in (first, second):
            await serves(world, card, mode="Exclusive", pool=POOL, healthy=True)
        await world.plant(TRAINER, first, percent=100)
        await until_async(lambda: _word_is(world, first, "InUse"), "the card to be in use", PATIENCE)

        await wishes(world, **MIG, rollout="PerCard")
        await serves(world, second, mode="MIG", healthy=True)
        await serves(world, first, mode="Exclusive", healthy=False, used=100)
        await is_(world, "Maintenance", "False PerCard")

        await world.book.amend(NODE, lambda held: ledger.release(held, TRAINER))
        await serves(world, first, mode="MIG", healthy=True)
        await is_(world, "Configured", "True Configured")
    assert cut_only_when_withdrawn(shown, 2)


async def _word_is(world: World, card: str, wanted: str) -> bool:
    return _word(await world.api.get(kinds.GPU_DEVICES, card)) == wanted


def cut_only_when_withdrawn(shown: list[GPUDevice], times: int) -> bool:
    """Whenever the MIG devices of a card changed, the ledger had said before that nobody has it or can."""
    cards = {one.metadata.name for one in shown}
    histories = [[one for one in shown if one.metadata.name == name] for name in cards]
    cuts = [old for history in histories for old, new in pairwise(history) if _devices(old) != _devices(new)]
    return len(cuts) == times and all(_word(old) == "Withdrawn" for old in cuts)


def _devices(device: GPUDevice) -> int:
    return len(device.status.cut.slots) if device.status.cut is not None else 0


def _word(device: GPUDevice) -> str:
    return next((one.reason for one in device.status.conditions if one.type == "Occupied"), "")
