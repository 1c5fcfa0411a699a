"""Processes killed around every write, or without its answer: nothing is overcommitted, lost or leaked.

The writes of each flow are counted in a first run. Then the flow runs again for every write and every kind of
fault, each time in its own environment. Afterwards new controllers are started, and every environment must
reach its expected state, keep it, and cause no more writes.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.controller.events import EventRecorder
from croupier_lab.lab import Lab
from tests.polling import until_async
from tests.proof import flow_env, history, manager_env
from tests.proof import flow_process as flow_module
from tests.proof.flow_env import SETUPS, FlowEnv
from tests.proof.injection import WriteInjection
from tests.proof.manager_env import LedgerManagerEnv
from tests.proof.processes import Start, child_processes

SECONDS = 60

FLOWS = (
    *("reserve", "bind", "release", "expire", "promote", "free", "takeover", "finalize"),
    *("open", "sync", "close", "audit", "status"),
)
WAYS = ("before", "after", "lost")
AT_ONCE = 4
GONE = "free, 4 cards"
ENDINGS = {
    ("bind", "unbound"): GONE,
    ("bind", "bound"): "bound",
    ("takeover", "unbound"): "reserved",
    ("takeover", "bound"): "reserved and bound",
    ("promote", ""): "bound",
    ("sync", ""): "free, 6 cards",
    ("close", ""): "closed",
    ("memory-bind", "unbound"): GONE,
    ("memory-bind", "bound"): "bound",
}
"""All other flows end with everything free."""


@dataclass(frozen=True)
class Point:
    flow: str
    number: int = 0
    when: str = "never"
    write: str = ""

    @property
    def name(self) -> str:
        return f"{self.flow}-{self.number}-{self.when}"

    def __str__(self) -> str:
        return f"{self.flow:<18} {self.number}  {self.when:<7}{self.write}"


Look = Callable[[FlowEnv], Awaitable[str]]


@dataclass
class Played:
    point: Point
    world: FlowEnv
    expected: str
    ending: str = ""


@dataclass
class Theatre:
    """Runs flows in child processes."""

    lab: Lab
    api: Client
    start: Start
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def play(self, point: Point) -> tuple[Played, list[str]]:
        world = FlowEnv(self.api, point.name)
        async with self.turns:
            await SETUPS[point.flow](world)
            known = [f"--kubeconfig={self.lab.kubeconfig}", f"--node={world.node}"]
            known += [f"--namespace={world.namespace}", f"--number={point.number}", f"--when={point.when}"]
            actor = await self.start(flow_module.__name__, point.name, point.flow, *known)
            if point.when in ("before", "after"):
                code = await actor.ended(120)
                assert code == -signal.SIGKILL, f"{point} was never reached: {actor.log.read_text()}"
                return Played(point, world, expected(point)), []
            report = await actor.receive()
            assert report["refused"] == ""
            assert await actor.ended() == 0
            return Played(point, world, expected(point)), report["writes"]

    async def play_all(self, flows: tuple[str, ...]) -> list[Played]:
        """Run each flow once to count its writes, then once for every crash point."""
        counted = await asyncio.gather(*(self.play(Point(flow)) for flow in flows))
        points = [point for played, writes in counted for point in _points(played.point.flow, writes)]
        interrupted = await asyncio.gather(*(self.play(point) for point in points))
        return [*(played for played, _ in counted), *(played for played, _ in interrupted)]


def _points(flow: str, writes: list[str]) -> Iterator[Point]:
    assert writes, f"{flow} writes nothing"
    for number, write in enumerate(writes, start=1):
        for when in WAYS:
            yield Point(flow, number, when, write)


def expected(point: Point) -> str:
    """The expected final state of the environment."""
    if point.flow in ("bind", "takeover"):
        unbound = point.number == 1 or (point.number == 2 and point.when == "before")
        return ENDINGS[point.flow, "unbound" if unbound and point.when != "lost" else "bound"]
    if point.flow == "memory-bind":  # its only write is the Binding
        return ENDINGS[point.flow, "unbound" if point.when == "before" else "bound"]
    if point.flow == "memory-reservation":  # its third write is after the deletion
        return GONE if point.number in (0, 3) or point.when == "lost" else "reserved"
    if point.flow == "finalize":  # its fourth write is after the deletion of the Reservation
        deleted = point.number in (0, 4, 5) or point.when == "lost"
        return GONE if deleted else "reserved"
    return ENDINGS.get((point.flow, ""), GONE)


async def ended_well(played: Played, look: Look) -> bool:
    played.ending = await look(played.world)
    return played.ending == played.expected


async def all_well(plays: list[Played], what: str, look: Look = FlowEnv.ending) -> None:
    try:
        await until_async(lambda: _all_well(plays, look), what, within=90)
    except AssertionError:
        raise AssertionError(f"{what}:\n{table([p for p in plays if p.ending != p.expected])}") from None


async def _all_well(plays: list[Played], look: Look) -> bool:
    return all(await asyncio.gather(*(ended_well(played, look) for played in plays)))


def table(plays: list[Played]) -> str:
    rows = (f"  {played.point!s:<58} {played.ending}" for played in plays)
    return "\n".join(["  flow               no when   write" + " " * 26 + "ending", *rows])


async def finalize_the_rest(plays: list[Played]) -> list[Played]:
    """Delete the Reservations that are left."""
    rest = [played for played in plays if played.ending.startswith("reserved")]
    for played in rest:
        await played.world.remove_reservation()
        if played.point.flow == "takeover" and played.ending == "reserved":
            await played.world.remove_pod()  # an unbound pod would keep the cards for two minutes
    ends = {"reserved": GONE, "reserved and bound": "bound"}
    return [Played(played.point, played.world, ends[played.ending]) for played in rest]


async def test_every_crash_point_recovers(private_lab, tell, tmp_path: Path):
    lab = await private_lab(crds=True)
    loaded = config.load(lab.kubeconfig)
    counting = WriteInjection()
    async with (
        api_client.connect(loaded) as api,
        api_client.connect(loaded, observe=counting.observe) as recovering,
        history.record(api, pods=True) as recording,
        child_processes(tmp_path) as start,
    ):
        plays = await Theatre(lab, api, start).play_all(FLOWS)

        async with manager_env.running(LedgerManagerEnv(recovering, EventRecorder(api, "proof"))) as manager:
            await all_well(plays, "worlds that did not come to a good end")
            assert await history.writes_stop(recording, manager.full_round, counting.writes)
            rest = await finalize_the_rest(plays)
            await all_well(rest, "Reservations that were not released")
            assert await history.writes_stop(recording, manager.full_round, counting.writes)
        tell(f"Crash points: {len(plays) - len(FLOWS)} in {len(FLOWS)} flows\n{table(plays)}")

    assert recording.faults() == []


MEMORY_FLOWS = ("memory-bind", "memory-reservation")


async def test_every_crash_point_recovers_with_the_in_memory_manager(private_lab, tell, tmp_path: Path):
    """The in-memory ledgers are lost; two successive processes rebuild them from the records."""
    lab = await private_lab(crds=True)
    loaded = config.load(lab.kubeconfig)
    counting = WriteInjection()
    async with (
        api_client.connect(loaded) as api,
        api_client.connect(loaded, observe=counting.observe) as recovering,
        history.record(api) as recording,
        child_processes(tmp_path) as start,
    ):
        plays = await Theatre(lab, api, start).play_all(MEMORY_FLOWS)

        for successor in ("the next process", "the process after it"):
            manager = LedgerManagerEnv(recovering, EventRecorder(api, "proof"), in_memory=True)
            async with manager_env.running(manager):
                await all_well(plays, f"environments that {successor} did not recover", in_book(manager))
                assert await history.writes_stop(recording, manager.full_round, counting.writes)
                if successor != "the next process":
                    rest = await finalize_the_rest(plays)
                    await all_well(rest, "Reservations that were not released", in_book(manager))
        tell(f"Crash points in memory: {len(plays) - len(MEMORY_FLOWS)}\n{table(plays)}")

    assert recording.revisions == 0, "in memory mode no NodeReservation is written"


def in_book(env: LedgerManagerEnv) -> Look:
    async def look(world: FlowEnv) -> str:
        return await world.ending_by(flow_env.from_memory(env.manager.ledger(world.node)))

    return look
