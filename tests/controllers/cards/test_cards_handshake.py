"""The handshake of ledger and card controller: a card changes its pool without being allocated twice.

It runs on a real API server with both capacity managers: a user annotates the card, the ledger withdraws it,
the condition reports that, and only then the card changes its pool.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

from croupier.api import kinds
from croupier.api.gpu import GPUDevice, agent_report
from croupier.controllers.cards.cards import CardController, CardInformers
from croupier.controllers.ledger import card_sync, occupancy
from croupier.controllers.ledger.card_sync import CardSyncController
from croupier.controllers.ledger.occupancy import OccupancyController
from croupier.controllers.shared.card_events import CardEventRecorders
from croupier.core.ledger import ledger
from croupier.core.model.card import LedgerCard
from croupier.core.pools.assignment import ASSIGNMENT
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.api_client import Selection
from tests.controllers.card_env import DeviceStore, condition
from tests.controllers.ledger_env import NODE, LedgerEnv, running, watched
from tests.polling import until, until_async

TRAINER = "team/trainer/1234"
POOL = {"allocation": {"mode": "Exclusive"}}
FIT = [condition(name, False) for name in ("DriverMissing", "ToolkitMissing", "MonitoringMissing")]


async def fit_node(world: LedgerEnv) -> str:
    """Create a ready node with one card; returns the card."""
    await world.node(gpu=1)
    await world.create(kinds.GPU_NODE_INVENTORIES, {"metadata": {"name": NODE}})
    status = {
        "bootstrap": {"phase": "Ready"},
        "conditions": [condition("InventoryIncomplete", False), *FIT],
    }
    await world.api.patch(kinds.GPU_NODE_INVENTORIES, NODE, {"status": status}, subresource="status")
    await world.create(kinds.GPU_POOLS, {"metadata": {"name": "team-a"}, "spec": POOL})
    return await world.device(0)


@contextlib.asynccontextmanager
async def at_work(world: LedgerEnv) -> AsyncIterator[list[GPUDevice]]:
    """Run the controllers of ledger, occupancy and cards; yields every observed state of a card."""
    quick = occupancy.OccupancyOptions(0.1, 0.05)
    agents = Selection(world.namespace, labels=agent_report.LEASE_SELECTOR)
    reporters, stop = CardEventRecorders(world.api), asyncio.Event()
    async with world.sees() as sight, watched(world.api, kinds.LEASES, agents) as leases:
        seen = sight.sources
        sources = CardInformers(seen.devices, seen.inventories, seen.pools, seen.nodes, leases)
        controllers: list[Any] = [
            CardSyncController(sight, world.manager, card_sync.CardSyncOptions()),
            OccupancyController(sight, world.api, manager=world.manager, settings=quick),
            CardController(sources, world.api, recorders=reporters, ledgers=DeviceStore()),
        ]
        shown: list[GPUDevice] = []

        def note(change: ObjectChange[GPUDevice]) -> None:
            if change.new is not None:
                shown.append(change.new)

        seen.devices.store.subscribe(note)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(running(reporters.run(stop)))
            for controller in controllers:
                await stack.enter_async_context(running(controller.run(stop)))
            yield shown


async def assigned(world: LedgerEnv, card: str, pool: str | None) -> None:
    await world.api.patch(kinds.GPU_DEVICES, card, {"metadata": {"annotations": {ASSIGNMENT: pool}}})


async def reaches(world: LedgerEnv, card: str, phase: str, occupied: str) -> None:
    async def reached() -> bool:
        status = (await world.api.get(kinds.GPU_DEVICES, card)).status
        reason = next((cond.reason for cond in status.conditions if cond.type == "Occupied"), "")
        return (status.phase, reason) == (phase, occupied)

    await until_async(reached, f"{card} to be {phase} and {occupied}", within=60)


async def ledgers(world: LedgerEnv, card: str, **about: Any) -> LedgerCard:
    def matching() -> LedgerCard | None:
        held = world.manager.ledger(NODE)
        found = held.card(card) if held is not None else None
        fits = found is not None and all(getattr(found, name) == value for name, value in about.items())
        return found if fits else None

    found = await until(matching, f"the ledger's card to be {about}", within=60)
    assert found is not None
    return found


async def test_a_card_joins_and_leaves_a_pool_between_its_pods(world: LedgerEnv):
    card = await fit_node(world)
    async with at_work(world) as shown:
        await reaches(world, card, "PendingAssignment", "Free")
        await world.plant(TRAINER, card)
        await reaches(world, card, "PendingAssignment", "InUse")

        await assigned(world, card, "team-a")
        await ledgers(world, card, healthy=False, pool="", used=50)

        await world.manager.amend(NODE, lambda held: ledger.release(held, TRAINER))
        await reaches(world, card, "Assigned", "Free")
        await ledgers(world, card, healthy=True, pool="team-a", mode="Exclusive")

        await world.plant(TRAINER, card, percent=100)
        await reaches(world, card, "InUse", "InUse")
        await assigned(world, card, None)
        await ledgers(world, card, healthy=False, pool="team-a", used=100)

        await world.manager.amend(NODE, lambda held: ledger.release(held, TRAINER))
        await reaches(world, card, "PendingAssignment", "Free")
        await ledgers(world, card, healthy=True, pool="", mode="Percent")
    assert never_moved_while_held(shown)


async def test_a_declined_card_serves_as_before_until_its_pool_takes_it(world: LedgerEnv):
    """Its pool accepts it while a pod holds it: the card joins after the pod, and not by an old report."""
    card = await fit_node(world)
    narrow = {**POOL, "deviceSelector": {"include": {"indexes": ["7"]}}}
    await world.create(kinds.GPU_POOLS, {"metadata": {"name": "team-b"}, "spec": narrow})
    async with at_work(world) as shown:
        await reaches(world, card, "PendingAssignment", "Free")
        await assigned(world, card, "team-b")
        await until_async(lambda: _declined(world, card, "team-b"), "the card to be declined", within=60)
        await ledgers(world, card, healthy=True, pool="", mode="Percent")
        await reaches(world, card, "Ready", "Free")

        await world.plant(TRAINER, card)
        wide = {"spec": {"deviceSelector": {"include": {"indexes": ["0-7"]}}}}
        await world.api.patch(kinds.GPU_POOLS, "team-b", wide)
        await ledgers(world, card, healthy=False, pool="", used=50)
        await world.manager.amend(NODE, lambda held: ledger.release(held, TRAINER))
        await reaches(world, card, "Assigned", "Free")
        await ledgers(world, card, healthy=True, pool="team-b", mode="Exclusive")
    assert [_occupancy(old) for old, new in pairwise(shown) if _pool(old) != _pool(new)] == ["Withdrawn"]
    assert shown[-1].status.declined is None


async def _declined(world: LedgerEnv, card: str, pool: str) -> bool:
    declined = (await world.api.get(kinds.GPU_DEVICES, card)).status.declined
    return declined is not None and (declined.name, declined.reason) == (pool, "OutOfSelector")


def never_moved_while_held(shown: list[GPUDevice]) -> bool:
    """Before every change of its pool the card was reported as Withdrawn."""
    moves = [(old, new) for old, new in pairwise(shown) if _pool(old) != _pool(new)]
    return len(moves) == 2 and all(_occupancy(old) == "Withdrawn" for old, _ in moves)


def _pool(device: GPUDevice) -> str:
    return device.status.pool_ref.name if device.status.pool_ref is not None else ""


def _occupancy(device: GPUDevice) -> str:
    return next((cond.reason for cond in device.status.conditions if cond.type == "Occupied"), "")
