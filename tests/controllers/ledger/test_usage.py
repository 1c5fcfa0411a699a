"""The recorder of usage on a real API server, with both capacity managers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.usage_records import ACCOUNT
from croupier.capacity import usage_data
from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.controllers.ledger.usage import UsageOptions, UsageRecorder
from croupier.controllers.ledger.usage_metrics import UsageMetrics
from croupier.controllers.ledger.usage_sources import (
    HoldingsReader,
    InMemoryLedgerChanges,
    StoredLedgerChanges,
)
from croupier.core.usage import report
from croupier.kube.client.errors import NotFound
from tests.controllers.conftest import in_the_api_server
from tests.controllers.ledger_env import NODE, LedgerEnv
from tests.polling import until_async

in_memory = pytest.mark.parametrize("world", ["InMemory"], indirect=True)
SECOND = timedelta(seconds=1)


@contextlib.asynccontextmanager
async def recording(
    world: LedgerEnv, *, retention: int = 35, registry: CollectorRegistry | None = None
) -> AsyncIterator[None]:
    """Run a recorder; it ends as at the end of a leadership."""
    stop = asyncio.Event()
    async with world.sees() as view:
        reader = HoldingsReader(view)
        changes = (
            InMemoryLedgerChanges(reader, world.manager, world.clock)
            if isinstance(world.manager, InMemoryCapacityManager)
            else StoredLedgerChanges(reader, world.api)
        )
        metrics = UsageMetrics(registry or CollectorRegistry())
        options = UsageOptions(world.namespace, retention, interval=0.2)
        working = asyncio.create_task(
            UsageRecorder(changes, world.api, metrics=metrics, options=options).run(stop)
        )
        try:
            yield
        finally:
            stop.set()
            await working


@pytest.fixture(autouse=True)
async def no_records(world: LedgerEnv) -> AsyncIterator[None]:
    yield
    maps = await world.api.list(kinds.CONFIG_MAPS)
    for item in maps.items:
        if item.metadata.name.startswith(ACCOUNT):
            with contextlib.suppress(NotFound):
                await world.api.delete(kinds.CONFIG_MAPS, item.metadata.name, namespace=world.namespace)


async def recorded(world: LedgerEnv, *by: report.Dimension) -> dict[tuple[str, ...], float]:
    """The recorded card-seconds of all time."""
    usage = await usage_data.read(world.api, world.namespace, 0)
    if usage is None:
        return {}
    rows = report.rows(usage.hours, by, since=min(usage.hours, default=0), until=usage.until // 3600 + 1)
    return {row.group: float(row.card_seconds) for row in rows}


async def opened(world: LedgerEnv, cards: int = 2) -> list[str]:
    """A node with cards and its ledger; the names of the cards."""
    await world.node(gpu=cards)
    async with world.works("capacity"):
        await world.shows({f"{NODE}-gpu-{number}": (True, 0) for number in range(cards)})
    return [f"{NODE}-gpu-{number}" for number in range(cards)]


@in_memory
async def test_shares_are_weighted_and_continue_after_a_restart(world):
    first, second = await opened(world)
    registry = CollectorRegistry()
    async with recording(world, registry=registry):
        await world.plant("team-a/half/u1", first, percent=50)
        await until_async(lambda: is_counted(world), "the first record")
        world.clock.ahead += 100 * SECOND
        await world.plant("team-b/whole/u2", second, percent=100)
        world.clock.ahead += 60 * SECOND
        await world.manager.release("team-a/half/u1", NODE)
        await until_async(lambda: about(world, {("team-a",): 80, ("team-b",): 60}), "both to be recorded")
    async with recording(world):
        world.clock.ahead += 40 * SECOND
        await until_async(lambda: about(world, {("team-a",): 80, ("team-b",): 100}), "the pod that stayed")
    labels = {"namespace": "team-a", "pool": "", "model": "", "mode": "Percent"}
    assert 80 <= (registry.get_sample_value("croupier_card_seconds_total", labels) or 0) < 90


async def about(world: LedgerEnv, expected: dict[tuple[str, ...], float]) -> bool:
    """The clock of this mode runs while the test does, so a few seconds more are right."""
    found = await recorded(world, "namespace")
    return found.keys() == expected.keys() and all(
        amount <= found[group] <= amount + 15 for group, amount in expected.items()
    )


@in_memory
async def test_finished_days_are_copied_and_old_days_dropped(world):
    (card,) = await opened(world, 1)
    day = timedelta(days=1)
    async with recording(world, retention=2):
        await world.plant("team-a/long/u1", card, percent=100)
        for _ in range(6):
            world.clock.ahead += day
            before = await recorded(world, "namespace")

            async def grew(before: dict[tuple[str, ...], float] = before) -> bool:
                return sum((await recorded(world, "namespace")).values()) != sum(before.values())

            await until_async(grew, "a day to be recorded")
        await world.manager.release("team-a/long/u1", NODE)
    usage = await usage_data.read(world.api, world.namespace, 0)
    assert usage is not None
    days = {hour // 24 for hour in usage.hours}
    today = usage.until // 86_400
    assert {today, today - 1, today - 2} <= days
    kept = [hour for hour in usage.hours if today - 2 <= hour // 24 < today]
    assert {float(sum(used.card_seconds for used in usage.hours[hour].values())) for hour in kept} == {3600.0}
    assert min(days) >= today - 2 - 4, "a slot of four days is emptied when all of them are old"
    account = await world.api.get(kinds.CONFIG_MAPS.raw, ACCOUNT, namespace=world.namespace)
    assert len(account["binaryData"]) == 1


@in_the_api_server
async def test_two_recorders_count_every_change_once(world):
    first, second = await opened(world)
    async with recording(world), recording(world):
        await world.plant("team-a/one/u1", first, percent=100)
        await world.plant("team-a/two/u2", second, percent=50)
        await asyncio.sleep(1.5)  # the time itself is what is counted
        await world.manager.release("team-a/one/u1", NODE)
        await world.manager.release("team-a/two/u2", NODE)
        revision = await world.api.get(kinds.LEDGER_REVISIONS, NODE)
        assert revision.written_at is not None
    async with recording(world):
        pass  # the last record of either is read and completed
    totals = await recorded(world, "namespace")
    assert 0 < totals[("team-a",)] < 20
    async with recording(world), recording(world):
        await world.plant("team-b/later/u3", second, percent=50)
        await until_async(lambda: is_recorded(world, "team-b"), "a later change to be recorded")
        await world.manager.release("team-b/later/u3", NODE)
    assert (await recorded(world, "namespace"))[("team-a",)] == totals[("team-a",)]


async def is_recorded(world: LedgerEnv, namespace: str) -> bool:
    return (namespace,) in await recorded(world, "namespace")


@in_the_api_server
async def test_a_release_has_the_time_of_its_write(world):
    """A write that only removes a holder changes the time that the API server records."""
    card, _ = await opened(world)
    await world.plant("team-a/one/u1", card, percent=100)
    held = (await world.api.get(kinds.LEDGER_REVISIONS, NODE)).written_at
    await asyncio.sleep(1.1)  # the time is in whole seconds
    await world.manager.release("team-a/one/u1", NODE)
    released = (await world.api.get(kinds.LEDGER_REVISIONS, NODE)).written_at
    await world.api.patch(kinds.NODE_RESERVATIONS, NODE, {"status": {"cards": 2}}, subresource="status")

    assert held is not None
    assert released is not None
    assert released > held
    assert (await world.api.get(kinds.LEDGER_REVISIONS, NODE)).written_at == released


@in_the_api_server
async def test_models_come_from_cards_or_from_the_node(world):
    hardware = {"product": "NVIDIA-A30", "mig": {"capable": True, "types": [{"name": "4g.24gb", "count": 1}]}}
    card = await world.device(0, hardware=hardware)
    await world.node(gpu=1)
    async with world.works("capacity"):
        await world.shows({card: (True, 0)})
    async with recording(world):
        await world.plant("team-a/one/u1", card, percent=100)
        await asyncio.sleep(1.1)  # the time itself is what is counted
        await world.manager.release("team-a/one/u1", NODE)
        await until_async(lambda: is_counted(world), "the model to be recorded")
    assert (await recorded(world, "model")).keys() == {("NVIDIA-A30",)}


async def is_counted(world: LedgerEnv) -> bool:
    return bool(await recorded(world, "model"))
