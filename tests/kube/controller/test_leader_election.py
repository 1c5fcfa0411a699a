"""Leader election among candidates of one process, on a real API server."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
import structlog
from prometheus_client import CollectorRegistry

from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, PatchType
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Raw
from croupier.kube.controller import lease
from croupier.kube.controller.leader_election import Elector, Leadership, NotLeader, WorkNotStopped
from croupier.kube.controller.lease import LEASES, LeaseTimings
from croupier.kube.controller.metrics import LeaderMetrics
from tests.kube.builders import CONFIG_MAPS, config_map
from tests.polling import until, until_async

FAST_TIMINGS = LeaseTimings(duration=3, renew_deadline=2.0, every=0.2)
SLOW_TIMINGS = LeaseTimings(duration=3600, renew_deadline=1800, every=0.2)
"""With these timings, a fast takeover cannot be an expiry."""


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


@dataclass
class Replica:
    """A candidate that leads until it is stopped."""

    name: str
    candidates: "list[Replica]"
    elector: Elector = field(init=False)
    leads: bool = False
    terms_of_office: int = 0
    rounds: int = 0
    overlaps: list[str] = field(default_factory=list)
    """Other candidates that led when this one began to lead."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    leadership: Leadership | None = None
    task: "asyncio.Task[None] | None" = None

    async def work(self, leadership: Leadership) -> None:
        self.overlaps += [replica.name for replica in self.candidates if replica.leads]
        self.leads, self.leadership = True, leadership
        self.terms_of_office += 1
        try:
            await self.stop.wait()
        finally:
            self.leads = False

    def chance(self) -> float:
        """The elector asks for it in each round: before it looks at the lease or renews it."""
        self.rounds += 1
        return random.random()  # noqa: S311  # a delay, no secret


@dataclass
class ElectionEnv:
    api: Client
    namespace: str
    replicas: list[Replica] = field(default_factory=list)

    def candidate(
        self,
        name: str,
        terms: LeaseTimings = FAST_TIMINGS,
        work: Callable[[Leadership], Awaitable[None]] | None = None,
    ) -> Replica:
        replica = Replica(name, self.replicas)
        replica.elector = Elector(
            self.api, "boss", self.namespace, identity=name, terms=terms, chance=replica.chance
        )
        replica.task = asyncio.create_task(replica.elector.run(work or replica.work, replica.stop))
        self.replicas.append(replica)
        return replica

    async def lease(self) -> Raw:
        return await self.api.get(LEASES, "boss", namespace=self.namespace)

    async def holder(self) -> str:
        return lease.read(await self.lease()).holder


@pytest_asyncio.fixture
async def election(api: Client, namespace: str) -> AsyncIterator[ElectionEnv]:
    town = ElectionEnv(api, namespace)
    yield town
    for replica in town.replicas:
        assert replica.task is not None
        replica.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await replica.task


async def test_the_first_candidate_becomes_leader_and_holds_the_lease(election, cluster):
    replica = election.candidate("a")
    await until(lambda: replica.leads)

    spec = (await election.lease())["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 3, 0)
    assert "boss" in cluster.kubectl("get", "lease", "boss", "-n", election.namespace).stdout


async def test_the_lease_is_renewed_for_as_long_as_the_work_lasts(election):
    replica = election.candidate("a")
    await until(lambda: replica.leads)
    first = (await election.lease())["spec"]["renewTime"]

    async def renewed() -> bool:
        return bool((await election.lease())["spec"]["renewTime"] > first)

    await until_async(renewed)
    assert (replica.leads, replica.terms_of_office) == (True, 1)


async def test_one_of_many_candidates_leads(election):
    replicas = [election.candidate(name) for name in "abcde"]
    await until(lambda: any(replica.leads for replica in replicas))
    before = {replica.name: replica.rounds for replica in replicas}
    await until(
        lambda: all(replica.rounds >= before[replica.name] + 5 for replica in replicas),
        "five more rounds of every candidate",
    )
    await until(lambda: sum(replica.leads for replica in replicas) == 1, "one to lead still, or again")
    assert [replica.overlaps for replica in replicas] == [[]] * 5


async def test_stopping_releases_the_lease_immediately(election):
    first = election.candidate("a", SLOW_TIMINGS)
    await until(lambda: first.leads)
    second = election.candidate("b", SLOW_TIMINGS)
    await until(lambda: second.elector._observed is not None)  # it has looked, and waits
    assert not second.leads

    first.stop.set()
    assert first.task is not None
    await asyncio.wait_for(first.task, 10)
    await until(lambda: second.leads, "the hand-over")
    assert lease.read(await election.lease()).transitions == 1


async def test_work_that_ends_releases_the_lease(election):
    async def brief(leadership: Leadership) -> None:
        return None

    replica = election.candidate("a", work=brief)
    assert replica.task is not None
    await asyncio.wait_for(replica.task, 10)
    assert await election.holder() == ""


async def test_work_that_crashes_releases_the_lease_and_raises(election):
    async def broken(leadership: Leadership) -> None:
        raise RuntimeError("out of cards")

    replica = election.candidate("a", work=broken)
    assert replica.task is not None
    with pytest.raises(RuntimeError, match="out of cards"):
        await asyncio.wait_for(replica.task, 10)
    assert await election.holder() == ""


async def test_a_candidate_that_is_stopped_never_leads(election):
    first = election.candidate("a")
    await until(lambda: first.leads)
    second = election.candidate("b")
    second.stop.set()
    assert second.task is not None
    await asyncio.wait_for(second.task, 10)
    assert second.terms_of_office == 0


async def test_a_lease_taken_by_another_ends_the_work_and_is_acquired_again(election, api):
    replica = election.candidate("a")
    await until(lambda: replica.leads)
    stolen = {
        "spec": {
            "holderIdentity": "thief",
            "leaseDurationSeconds": 1,
            "renewTime": lease.micro_time(SystemClock().now()),
        }
    }
    await api.patch(LEASES, "boss", stolen, namespace=election.namespace, patch_type=PatchType.MERGE)

    await until(lambda: not replica.leads, "the work to end")
    await until(lambda: replica.leads and replica.terms_of_office == 2, "the second term")
    assert await election.holder() == "a"


async def test_a_foreign_change_of_the_lease_keeps_the_leadership(election, api):
    replica = election.candidate("a")
    await until(lambda: replica.leads)
    for n in range(5):
        patch = {"metadata": {"labels": {"n": str(n)}}}
        await api.patch(LEASES, "boss", patch, namespace=election.namespace)
        first = (await election.lease())["spec"]["renewTime"]

        async def renewed(first: str = first) -> bool:
            return bool((await election.lease())["spec"]["renewTime"] > first)

        await until_async(renewed)
    assert (replica.leads, replica.terms_of_office) == (True, 1)
    assert (await election.lease())["metadata"]["labels"] == {"n": "4"}


async def test_a_deleted_lease_is_created_again(election, api):
    replica = election.candidate("a")
    await until(lambda: replica.leads)
    await api.delete(LEASES, "boss", namespace=election.namespace)

    async def back() -> bool:
        try:
            return lease.read(await election.lease()).holder == "a"
        except NotFound:
            return False

    await until_async(back)
    assert replica.leads


async def test_a_dead_holder_is_timed_by_the_local_clock(election, api):
    """The holder's clock is an hour ahead; only the unchanged record counts."""
    dead = lease.acquired(
        lease.new("boss", election.namespace), "dead", now=SystemClock().now(), terms=FAST_TIMINGS
    )
    dead["spec"] |= {"renewTime": "2099-01-01T00:00:00.000000Z", "leaseDurationSeconds": 2}
    await api.create(LEASES, dead)
    began = time.monotonic()
    replica = election.candidate("a")
    await until(lambda: replica.leads)

    assert time.monotonic() - began >= 2.0
    assert lease.read(await election.lease()).transitions == 1


async def test_when_renewal_fails_the_work_ends_before_another_leads(api, namespace, election):
    """The holder cannot reach the API server, and another candidate waits for the lease to expire."""
    connected = True

    def permit() -> None:
        if not connected:
            raise NotLeader("cut off")

    cut_off = ElectionEnv(api.fenced(permit), namespace, election.replicas)
    holder = cut_off.candidate("a")
    await until(lambda: holder.leads)
    both_led: list[bool] = []

    async def takes_over(leadership: Leadership) -> None:
        both_led.append(holder.leads or (holder.leadership is not None and holder.leadership.held()))

    rival = election.candidate("b", work=takes_over)
    connected = False
    assert rival.task is not None
    await asyncio.wait_for(rival.task, 30)
    assert both_led == [False]


async def test_work_that_will_not_stop_is_an_error(namespace, api):
    terms = LeaseTimings(duration=1, renew_deadline=0.5, every=0.1)
    let_go = asyncio.Event()

    async def deaf(leadership: Leadership) -> None:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()

    elector = Elector(api, "boss", namespace, identity="a", terms=terms)
    task = asyncio.create_task(elector.run(deaf, asyncio.Event()))
    await until(lambda: elector._lease is not None)
    stolen = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60}}
    await api.patch(LEASES, "boss", stolen, namespace=namespace)

    with pytest.raises(WorkNotStopped, match="still runs after the lease was lost"):
        await asyncio.wait_for(task, 30)
    let_go.set()


async def test_a_former_leader_is_refused_before_it_writes(api, namespace):
    leadership = Leadership("a", SystemClock(), until=time.monotonic() - 1)
    fenced = api.fenced(leadership.require)

    with pytest.raises(NotLeader, match="a is no longer the leader"):
        await fenced.create(CONFIG_MAPS, config_map(), namespace=namespace)
    assert (await fenced.list(CONFIG_MAPS)).items is not None, "reading is always allowed"


async def test_the_leadership_is_in_the_metrics(api, namespace):
    said: list[bool] = []

    class Ear(LeaderMetrics):
        def leading(self, lease: str, leads: bool) -> None:
            assert lease == f"{namespace}/boss"
            said.append(leads)

    async def brief(leadership: Leadership) -> None:
        return None

    await Elector(api, "boss", namespace, terms=FAST_TIMINGS, metrics=Ear(CollectorRegistry())).run(
        brief, asyncio.Event()
    )
    assert said == [False, True, False]


async def test_an_unreachable_api_server_is_logged_and_not_fatal(api, namespace):
    town = ElectionEnv(api.fenced(lambda: (_ for _ in ()).throw(NotLeader("no writes"))), namespace)
    with structlog.testing.capture_logs() as said:
        replica = town.candidate("a")
        await until(lambda: sum("cannot acquire Lease" in line["event"] for line in said) >= 2)
    assert not replica.leads
    assert replica.task is not None
    replica.task.cancel()
