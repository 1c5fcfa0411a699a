"""Migration between the capacity managers with live holders."""

from pathlib import Path
from typing import Any

import pytest

from croupier.api import kinds
from croupier.capacity import migration
from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.capacity.migration import MigrationFailed
from croupier.core.claims import rebuild
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.reported_cards import NodeCardReport
from croupier.core.ledger.reservation_hold import ReservationHold
from croupier.core.model.card_request import CardShares
from croupier.core.model.pod_view import PodView
from croupier.kube.controller.lease import LeaseTimings
from tests.capacity.env import NODE, NOON, FixedClock, capacity_env, claim, node, pod

REPORT = NodeCardReport(NODE, allocatable={"nvidia.com/gpu": 2})
QUICK = LeaseTimings(duration=1, renew_deadline=0.8, every=0.1)


@pytest.fixture
def kubeconfig(cluster: Any, clean_cluster: None) -> Path:
    path: Path = cluster.kubeconfig
    return path


async def test_all_holders_are_moved_into_memory(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        for name in ("node-1", "node-2", "node-3"):
            await env.manager.open(name, node(name=name))
        await env.manager.claim("node-1", claim(pod(0), bound=True))
        await env.manager.claim("node-1", claim(pod(1)))
        await env.manager.claim("node-2", claim("default/my-pod", until=None, reservation="example"))
        before = {name: env.manager.ledger(name) for name in env.manager.nodes()}
        memory = InMemoryCapacityManager(clock=FixedClock())

        carried = await memory.carry_over(env.api)

        assert sorted(carried) == sorted(before)
        assert {name: memory.ledger(name) for name in memory.nodes()} == before
        assert not (await env.api.list(kinds.NODE_RESERVATIONS)).items
        assert await memory.carry_over(env.api) == ()


async def test_a_late_write_is_moved_too(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())
        memory = InMemoryCapacityManager(clock=FixedClock())
        stale = await env.api.get(kinds.NODE_RESERVATIONS, NODE)
        await env.manager.claim(NODE, claim(pod()))

        await migration._remove(env.api, stale, memory._place)

        ledger = memory.ledger(NODE)
        assert ledger is not None
        assert ledger.holders() == {pod()}
        # The other process notices that the ledger is deleted, and claims nothing more.
        assert "the ledger has no node" in str(await env.manager.claim(NODE, claim(pod(1))))


async def test_an_unreadable_ledger_stops_the_migration(kubeconfig, monkeypatch):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())
        listing = await env.api.list(kinds.NODE_RESERVATIONS)

        async def unreadable(*_: Any) -> Any:
            return type(listing)([], listing.resource_version, ("node-9: Expected `int`",))

        monkeypatch.setattr(env.api, "list", unreadable)
        with pytest.raises(MigrationFailed, match="1 NodeReservation cannot be read"):
            await InMemoryCapacityManager().carry_over(env.api)
        monkeypatch.undo()
        assert (await env.api.list(kinds.NODE_RESERVATIONS)).items


async def test_from_memory_into_the_api_server(kubeconfig):
    """The first `open` of a node creates the ledger that is rebuilt from pods and Reservations."""
    memory = InMemoryCapacityManager(clock=FixedClock())
    await memory.open(NODE, node())
    granted = await memory.claim(NODE, claim(pod(0), CardShares(2, 40), bound=True))
    promised = await memory.claim(NODE, claim("default/my-pod", until=None, reservation="example"))
    records = rebuild.rebuild(REPORT, [_bound(granted)], [_promise(promised)], NOON)

    async with capacity_env(kubeconfig) as env:
        opened = await env.manager.open(NODE, records.ledger)
    async with capacity_env(kubeconfig) as restarted:
        assert restarted.manager.ledger(NODE) == opened == memory.ledger(NODE)


def _bound(grant: Any) -> PodView:
    return PodView(
        "default/pod-0",
        pod(0).rpartition("/")[2],
        NODE,
        wants=(CardShares(2, 40),),
        grant=grant,
        indexes=(0, 1),
    )


def _promise(grant: Any) -> ReservationHold:
    return ReservationHold("example", "default/my-pod", NODE, grant, NOON, None)


async def test_the_in_memory_manager_restarts_from_the_records():
    before = InMemoryCapacityManager(clock=FixedClock())
    await before.open(NODE, node())
    granted = await before.claim(NODE, claim(pod(0), CardShares(2, 40), bound=True))

    after = InMemoryCapacityManager(clock=FixedClock())
    rebuilt: Ledger = rebuild.rebuild(REPORT, [_bound(granted)], [], NOON).ledger

    assert await after.open(NODE, rebuilt) == before.ledger(NODE)
