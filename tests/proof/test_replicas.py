"""Several active controllers: two leaders, no leader election, clock skew.

Leader election saves work but does not fence; only compare-and-swap does. So with any number of active
controllers and any clock, no card is allocated twice, no bound pod loses its cards, and writes stop when
nothing is left to do.
"""

import asyncio
import time
from datetime import timedelta

from croupier.api import kinds
from croupier.extender.protocol import ExtenderBindingArgs
from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.kube.events import Recorder
from tests.kube.waiting import until_async
from tests.proof import ground, history
from tests.proof import replica as replica_module
from tests.proof.company import Player, company
from tests.proof.house import House
from tests.proof.worlds import World

SECONDS = 60

HOUR = 3600.0


async def worlds(api: Client, count: int) -> list[World]:
    """Nodes whose ledgers the controllers create."""
    made = [World(api, f"world-{number}") for number in range(count)]
    for world in made:
        await world.lay()
    for world in made:
        await opened(world)
    return made


async def opened(world: World) -> None:
    async def look() -> bool:
        return await world.sheet() is not None

    await until_async(look, f"the ledger of {world.node}")


async def bound(house: House, world: World, name: str) -> str:
    """Bind a pod with retries."""
    holder = await world.pod(name)
    args = ExtenderBindingArgs(name, world.namespace, holder.rpartition("/")[2], world.node)

    async def tried() -> bool:
        return await house.binder.bind(args) == ""

    await until_async(tried, f"pod {holder} to be bound", within=60)
    return holder


async def ends(world: World, *endings: str) -> None:
    async def look() -> bool:
        return await world.ending() in endings

    try:
        await until_async(look, f"{world.name} to be {endings}", within=60)
    except AssertionError as late:
        raise AssertionError(f"{late}: {await world.ending()}, {await world.sheet()}") from None


async def a_day(api: Client, places: list[World]) -> None:
    """Create Reservations, bind pods, and delete both in different orders."""
    house = House(api, Recorder(api, "proof"), ttl=timedelta(seconds=60))
    await house.synced()
    for world in places:
        await world.reservation()
    await asyncio.gather(*(ends(world, "reserved") for world in places))
    for world in places:
        await bound(house, world, "worker")  # takes over the Reservation
        await bound(house, world, "other")
    await house.binder.drain()
    await house.close()
    for number, world in enumerate(places):
        if number % 2:
            await world.remove_pod()
            await world.remove_reservation()
        else:
            await world.remove_reservation()
            await world.remove_pod()
        await world.remove_pod("other")
    await asyncio.gather(*(ends(world, "free, 4 cards") for world in places))


async def test_three_replicas_without_election_and_with_three_clocks(private_lab, tell, tmp_path):
    lab = await ground.raised(private_lab)
    began = time.monotonic()
    async with (
        client.connect(config.load(lab.kubeconfig)) as api,
        history.recorded(api, pods=True) as recording,
        company(tmp_path) as start,
    ):
        for name, shift in (("right", 0.0), ("ahead", HOUR), ("behind", -HOUR)):
            known = (f"--kubeconfig={lab.kubeconfig}", f"--name={name}", f"--shift={shift}")
            replica = await start(replica_module.__name__, name, *known)
            assert await replica.hear() == "leading"
        places = await worlds(api, 3)

        await a_day(api, places)

        assert await history.silence(recording)
        tell(
            f"Three replicas, three clocks: {recording.revisions} revisions, {time.monotonic() - began:.0f} s"
        )
    assert recording.faults() == []


async def test_a_leader_that_was_frozen_past_its_lease(private_lab, tell, tmp_path):
    lab = await ground.raised(private_lab)
    async with (
        client.connect(config.load(lab.kubeconfig)) as api,
        history.recorded(api, pods=True) as recording,
        company(tmp_path) as start,
    ):

        async def replica(name: str) -> Player:
            known = (f"--kubeconfig={lab.kubeconfig}", f"--name={name}", "--elected")
            return await start(replica_module.__name__, name, *known)

        first = await replica("first")
        assert await first.hear() == "leading"
        places = await worlds(api, 3)
        second = await replica("second")
        for world in places:
            await world.reservation()

        await first.freeze()  # while it is working
        assert await second.hear() == "leading"
        await asyncio.gather(*(ends(world, "reserved") for world in places))
        for world in places[:2]:
            await world.remove_reservation()
        first.thaw()

        await asyncio.gather(*(ends(world, "free, 4 cards") for world in places[:2]))
        await places[2].remove_reservation()
        await ends(places[2], "free, 4 cards")
        assert await history.silence(recording)
        assert await api.get(kinds.NODES, places[0].node) is not None
        tell(f"A leader frozen past its lease: {recording.revisions} revisions")
    assert recording.faults() == []
