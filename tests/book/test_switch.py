"""From one book to the other and back with live reservations, and never both at once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from croupier.api import kinds
from croupier.book import switch
from croupier.book.memory import InMemoryCapacityManager
from croupier.book.switch import BookKept, NotCarried
from croupier.core.ledgers import rebuild
from croupier.core.ledgers.ledger import Ledger
from croupier.core.ledgers.pledge import Pledge
from croupier.core.pods.pod import PodView
from croupier.core.pods.want import Shares
from croupier.kube import lease
from croupier.kube.client import Client
from croupier.kube.clock import SystemClock
from croupier.kube.lease import LEASES, Terms
from croupier.kube.resource import Raw
from tests.book.worlds import NODE, NOON, UID, Noon, claim, desk, node, pod

QUICK = Terms(duration=1, renew_deadline=0.8, every=0.1)


@pytest.fixture
def kubeconfig(cluster: Any, clean_cluster: None) -> Path:
    found: Path = cluster.kubeconfig
    return found


async def test_into_memory_with_everybody_on_board(kubeconfig):
    async with desk(kubeconfig) as one:
        for name in ("node-1", "node-2", "node-3"):
            await one.book.open(name, node(name=name))
        await one.book.claim("node-1", claim(pod(0), bound=True))
        await one.book.claim("node-1", claim(pod(1)))
        await one.book.claim("node-2", claim("default/my-pod", until=None, reservation="example"))
        before = {name: one.book.ledger(name) for name in one.book.nodes()}
        memory = InMemoryCapacityManager(clock=Noon())

        carried = await memory.carry_over(one.api)

        assert sorted(carried) == sorted(before)
        assert {name: memory.ledger(name) for name in memory.nodes()} == before
        assert not (await one.api.list(kinds.NODE_RESERVATIONS)).items
        assert await memory.carry_over(one.api) == ()


async def test_what_a_late_writer_still_takes_is_carried_too(kubeconfig):
    async with desk(kubeconfig) as one:
        await one.book.open(NODE, node())
        memory = InMemoryCapacityManager(clock=Noon())
        stale = await one.api.get(kinds.NODE_RESERVATIONS, NODE)
        await one.book.claim(NODE, claim(pod()))

        await switch._remove(one.api, stale, memory._place)

        found = memory.ledger(NODE)
        assert found is not None
        assert found.holders() == {pod()}
        # The other process learns that its book is gone, and takes no more.
        assert "the ledger has no node" in str(await one.book.claim(NODE, claim(pod(1))))


async def test_a_ledger_nobody_can_read_stops_the_switch(kubeconfig, monkeypatch):
    async with desk(kubeconfig) as one:
        await one.book.open(NODE, node())
        listing = await one.api.list(kinds.NODE_RESERVATIONS)

        async def unreadable(*_: Any) -> Any:
            return type(listing)([], listing.resource_version, ("node-9: Expected `int`",))

        monkeypatch.setattr(one.api, "list", unreadable)
        with pytest.raises(NotCarried, match="1 NodeReservations cannot be read"):
            await InMemoryCapacityManager().carry_over(one.api)
        monkeypatch.undo()
        assert (await one.api.list(kinds.NODE_RESERVATIONS)).items


async def test_out_of_memory_into_the_api_server_from_the_records(kubeconfig):
    """The first `open` of a node carries what the pods and Reservations say."""
    memory = InMemoryCapacityManager(clock=Noon())
    await memory.open(NODE, node())
    granted = await memory.claim(NODE, claim(pod(0), Shares(2, 40), bound=True))
    promised = await memory.claim(NODE, claim("default/my-pod", until=None, reservation="example"))
    records = rebuild.rebuild(NODE, node().cards, [_bound(granted)], [_promise(promised)], NOON)

    async with desk(kubeconfig) as one:
        opened = await one.book.open(NODE, records.ledger)
    async with desk(kubeconfig) as restarted:
        assert restarted.book.ledger(NODE) == opened == memory.ledger(NODE)


def _bound(grant: Any) -> PodView:
    return PodView(
        "default/pod-0", pod(0).rpartition("/")[2], NODE, wants=(Shares(2, 40),), grant=grant, indexes=(0, 1)
    )


def _promise(grant: Any) -> Pledge:
    return Pledge("example", "default/my-pod", NODE, grant, NOON, None)


async def test_a_memory_book_restarts_from_the_records():
    before = InMemoryCapacityManager(clock=Noon())
    await before.open(NODE, node())
    granted = await before.claim(NODE, claim(pod(0), Shares(2, 40), bound=True))

    after = InMemoryCapacityManager(clock=Noon())
    rebuilt: Ledger = rebuild.rebuild(NODE, node().cards, [_bound(granted)], [], NOON).ledger

    assert await after.open(NODE, rebuilt) == before.ledger(NODE)


async def test_nobody_keeps_a_book_in_memory(kubeconfig, namespace):
    async with desk(kubeconfig) as one:
        await switch.guard(one.api, namespace)


async def test_a_book_in_memory_keeps_the_other_out(kubeconfig, namespace):
    async with desk(kubeconfig) as one:
        held = await _renewed(one.api, lease.new(switch.LEASE, namespace), one.api.create)
        renewing = asyncio.create_task(_renew(one.api, held))
        try:
            with pytest.raises(BookKept, match="extender-0 keeps the book in memory") as refusal:
                await switch.guard(one.api, namespace, terms=Terms(every=0.2))
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
        assert "stop that extender" in str(refusal.value)


async def test_the_lease_of_a_dead_one_runs_out(kubeconfig, namespace):
    async with desk(kubeconfig) as one:
        dead = lease.claimed(lease.new(switch.LEASE, namespace), UID, now=SystemClock().now(), terms=QUICK)
        await one.api.create(LEASES, dead)

        await switch.guard(one.api, namespace, terms=QUICK)


async def _renew(api: Client, held: Raw) -> None:
    while True:
        held = await _renewed(api, held, api.update)
        await asyncio.sleep(0.05)


async def _renewed(api: Client, held: Raw, write: Any) -> Raw:
    body = lease.claimed(held, "extender-0", now=SystemClock().now(), terms=Terms())
    written: Raw = await write(LEASES, body)
    return written
