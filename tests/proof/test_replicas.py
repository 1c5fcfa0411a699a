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
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.controller.events import EventRecorder
from tests.polling import until_async
from tests.proof import history
from tests.proof import replica as replica_module
from tests.proof.flow_env import FlowEnv
from tests.proof.manager_env import LedgerManagerEnv
from tests.proof.processes import ChildProcess, child_processes

SECONDS = 20

HOUR = 3600.0


async def worlds(api: Client, count: int) -> list[FlowEnv]:
    """Nodes whose ledgers the controllers create."""
    made = [FlowEnv(api, f"world-{number}") for number in range(count)]
    for world in made:
        await world.lay()
    for world in made:
        await opened(world)
    return made


async def opened(world: FlowEnv) -> None:
    async def look() -> bool:
        return await world.sheet() is not None

    await until_async(look, f"the ledger of {world.node}")


async def bound(house: LedgerManagerEnv, world: FlowEnv, name: str) -> str:
    """Bind a pod with retries."""
    holder = await world.pod(name)
    args = ExtenderBindingArgs(name, world.namespace, holder.rpartition("/")[2], world.node)

    async def tried() -> bool:
        return await house.binder.bind(args) == ""

    await until_async(tried, f"pod {holder} to be bound", within=60)
    return holder


async def ends(world: FlowEnv, *endings: str) -> None:
    async def look() -> bool:
        return await world.ending() in endings

    try:
        await until_async(look, f"{world.name} to be {endings}", within=60)
    except AssertionError as late:
        raise AssertionError(f"{late}: {await world.ending()}, {await world.sheet()}") from None


async def a_day(api: Client, places: list[FlowEnv]) -> None:
    """Create Reservations, bind pods, and delete both in different orders."""
    house = LedgerManagerEnv(api, EventRecorder(api, "proof"), ttl=timedelta(seconds=60))
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


async def full_round(*replicas: ChildProcess) -> None:
    """A full round of all of them at once."""
    for replica in replicas:
        replica.tell("full round")
    for replica in replicas:
        assert await replica.receive() == "full round"


async def test_three_replicas_without_election_and_with_three_clocks(private_lab, tell, tmp_path):
    lab = await private_lab(crds=True)
    began = time.monotonic()
    async with (
        api_client.connect(config.load(lab.kubeconfig)) as api,
        history.record(api, pods=True) as recording,
        child_processes(tmp_path) as start,
    ):
        replicas = []
        for name, shift in (("right", 0.0), ("ahead", HOUR), ("behind", -HOUR)):
            known = (f"--kubeconfig={lab.kubeconfig}", f"--name={name}", f"--shift={shift}")
            replicas.append(await start(replica_module.__name__, name, *known))
            assert await replicas[-1].receive() == "leading"
        places = await worlds(api, 3)

        await a_day(api, places)

        assert await history.writes_stop(recording, lambda: full_round(*replicas))
        tell(
            f"Three replicas, three clocks: {recording.revisions} revisions, {time.monotonic() - began:.0f} s"
        )
    assert recording.faults() == []


async def test_a_leader_that_was_frozen_past_its_lease(private_lab, tell, tmp_path):
    lab = await private_lab(crds=True)
    async with (
        api_client.connect(config.load(lab.kubeconfig)) as api,
        history.record(api, pods=True) as recording,
        child_processes(tmp_path) as start,
    ):

        async def replica(name: str) -> ChildProcess:
            known = (f"--kubeconfig={lab.kubeconfig}", f"--name={name}", "--elected")
            return await start(replica_module.__name__, name, *known)

        first = await replica("first")
        assert await first.receive() == "leading"
        places = await worlds(api, 3)
        second = await replica("second")
        for world in places:
            await world.reservation()

        first.freeze()  # while it is working
        assert await second.receive() == "leading"
        await asyncio.gather(*(ends(world, "reserved") for world in places))
        for world in places[:2]:
            await world.remove_reservation()
        first.resume()

        await asyncio.gather(*(ends(world, "free, 4 cards") for world in places[:2]))
        await places[2].remove_reservation()
        await ends(places[2], "free, 4 cards")
        assert await history.writes_stop(recording, lambda: full_round(second))
        assert await api.get(kinds.NODES, places[0].node) is not None
        tell(f"A leader frozen past its lease: {recording.revisions} revisions")
    assert recording.faults() == []
